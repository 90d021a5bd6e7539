"""torch.compile of ranks: what each compiles is its own, and one that waits for others while it compiles lets them run.

torch builds a rank's number into the code, with no guard against another's; and it compiles under a lock, which a
process has for itself, and where a thread that waits for it would keep its turn.
"""

import itertools
from collections import deque

from torch._dynamo import convert_frame, eval_frame

from simgpu.ranks.here import here
from simgpu.ranks.scheduler import Wait

regions = getattr(eval_frame, "_next_isolate_recompiles_id", itertools.count())  # before torch 2.13 all have the same
_set_region = getattr(eval_frame, "set_eval_frame_isolate_recompiles_id", None)
_own = convert_frame.compile_lock


def region(number):
    """As torch's function that says where compiled code is kept, which is a place of its own for each rank."""
    rank = here()
    return _set_region(rank.region if rank is not None and number < 0 else number)


class Lock:
    """As torch's, for ranks."""

    def __init__(self):
        self._holder, self._depth, self._waiting = None, 0, deque()

    def __enter__(self):
        rank = here()
        if self._holder not in (None, rank):
            self._waiting.append(Wait(rank, "torch.compile", f"in which rank {self._holder.number} is"))
            rank.wait(self._waiting[-1])
        self._holder = rank
        self._depth += 1

    def __exit__(self, *error):
        self._depth -= 1
        if self._depth == 0:
            self._holder = self._waiting[0].owner if self._waiting else None
            if self._waiting:
                self._waiting.popleft().end()


class Locks:
    """Stands for torch's lock: that of the ranks in a rank."""

    def __enter__(self):
        (here().world.compiling if here() else _own).__enter__()

    def __exit__(self, *error):
        (here().world.compiling if here() else _own).__exit__(*error)
