"""Which simulated rank the calling thread is, and what features ask of it: `ranks.rank.Rank`, from below."""

import os
import threading
from typing import Any, Protocol


class World(Protocol):
    """The ranks of one `spawn`, as features see them.

    Attributes:
        size: How many.
        store: The `torch.distributed.Store` that they share.
        new_groups: Notes calls of ``new_group``.
        group: Makes a rank's part of a process group.
        compiling: The ranks' lock for ``torch.compile``.
        shardings: What DTensor has found for all of them.
        profiling: The profiler that one of them has started, or None.
    """

    size: int
    store: Any
    new_groups: Any
    group: Any
    compiling: Any
    shardings: dict
    profiling: Any


class Rank(Protocol):
    """One rank, as features see it.

    Attributes:
        clock: The simulated one, or None.
        in_batch: Whether its messages go out together.
        program_joined: Whether the program has called ``init_process_group``.
        region: Where ``torch.compile`` keeps what it has compiled for it; None before the first.
    """

    number: int
    world: World
    clock: Any
    in_batch: bool
    program_joined: bool
    region: int | None

    def end_backward(self) -> None:
        """Let the current stream wait for what DDP's gradients wait for."""


RANK_PIDS = 2**22 + 1  # ranks have numbers as processes from here on; Linux gives none above 2**22
_here = threading.local()


def here() -> Rank | None:
    """Return the rank of the calling thread, None outside of one."""
    return getattr(_here, "rank", None)


def enter(rank: Rank) -> None:
    """Make the calling thread that of `rank`."""
    _here.rank = rank


def _leave():
    _here.rank = None


os.register_at_fork(after_in_child=_leave)  # a process that a rank forks is none
