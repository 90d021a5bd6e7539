"""Processes of one machine: start them, join them, and reduce over them by messages or by shared memory."""

from d2lmini.distributed.messages import allreduce, execute
from d2lmini.distributed.spawn import RankError, RankTimeoutError, run

__all__ = ["RankError", "RankTimeoutError", "SharedAllreduce", "allreduce", "execute", "run"]


def __getattr__(name):
    """Import the shared memory when it is first asked for: it needs a system with file locks."""
    if name != "SharedAllreduce":
        raise AttributeError(f"module 'd2lmini.distributed' has no attribute {name!r}")
    from d2lmini.distributed.shared import SharedAllreduce

    return SharedAllreduce
