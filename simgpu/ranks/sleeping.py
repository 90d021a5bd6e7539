"""``time.sleep`` on a rank: it takes simulated time and lets the others run, who may do what the rank looks for."""

import time
from time import monotonic  # what a program reads on a rank may be simulated

from simgpu.ranks import diagnosis
from simgpu.ranks.errors import DeadlockError
from simgpu.torch_glue.here import here

LONGEST_S = 600  # NCCL's own time-out: so long the others are waited for
REAL_S = 5  # something beside the ranks, as another process, may be what the rank looks for
_NAP_S = 1e-3
really_sleep = time.sleep


def sleep(seconds):
    """Sleep. Raises DeadlockError where the others wait, and the rank has done nothing but sleep for 10 minutes."""
    if here() is None:
        return really_sleep(seconds)
    if seconds < 0:
        raise ValueError("sleep length must be non-negative")
    rank = here()
    if rank.clock is not None:
        rank.clock.advance(seconds, "sleep")
    scheduler = rank.world.scheduler
    scheduler.expire(min([rank.now_ps(), *(rank.world.ranks[other].left_at for other in scheduler.ready())]))
    moves, rested = rank.world.scheduler.moves, rank.rest()
    if moves != rank.world.scheduler.moves:
        rank.slept = 0.0
        return None
    if not rank.slept:
        rank.slept_since = monotonic()
    rank.slept += seconds
    if rank.slept >= LONGEST_S and monotonic() - rank.slept_since >= REAL_S and _others_wait(rank):
        raise DeadlockError(diagnosis.asleep(rank.world, rank))
    return None if rested else really_sleep(min(seconds, _NAP_S))


def _others_wait(rank):
    return rank.world.scheduler.waiting() or any(other.blocked for other in rank.world.ranks)


def nap():
    """Let the others run, or wait a little where none can: the rank looks for something again and again."""
    if not here().rest():
        really_sleep(_NAP_S)
