"""What other people's libraries keep once a process in their own modules, so that each rank has it for itself."""

import os
import sys

from simgpu.torch_glue.here import RANK_PIDS, here


def same(value):
    """Return the value: a rank begins with what is there, as after a fork."""
    return value


def lightning():
    """Give Lightning's ``rank_zero_only`` its rank, as its own modules do when they are imported."""
    only = sys.modules["lightning_utilities.core.rank_zero"].rank_zero_only
    if here() is not None or not hasattr(only, "rank"):
        only.rank = int(os.environ.get("RANK", 0))


def process(own):
    """Return ``Process.__init__`` of psutil, for which a rank's number is that of the process in which ranks run."""

    def init(process, pid=None, *more):
        own(process, None if pid is not None and pid >= RANK_PIDS else pid, *more)

    return init
