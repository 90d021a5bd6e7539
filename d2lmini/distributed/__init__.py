"""Processes of one machine: start them, join them, and reduce over them by messages or by shared memory."""

from d2lmini.distributed.launch import RankError, RankTimeoutError, run

__all__ = ["RankError", "RankTimeoutError", "run"]
