"""How far this process has come, as a number, and what it does: what `watch` tells the other ranks once a second.

    stage        a batch, an evaluation's batch, an exchange of objects: all ranks begin the same ones in the same order
    mark         inside a stage, before this process waits for others

The rank with the fewest marks is thus the one that the others wait for. What it does decides how long it may take:

    slow         it reads or writes files, or torch compiles: it may even rest for long
    familiar     it does what it has done before, such as learning from a batch of this size: it is known how long that
                 takes, in seconds of the processor, which do not become more where other programs want it too
"""

import time
from contextlib import contextmanager
from dataclasses import dataclass, field

STAGE = 1_000_000  # marks: more than any stage has, so that ranks are equal again when the next one begins
WARM_UP = 2  # how often a work is done before its time counts: code is loaded, a GPU records what it will replay


@dataclass
class Pulse:
    """How many marks this process has passed, how many nested `slow` sections it is in, and its `familiar` work.

    work: when that began and the longest that one of its kind took, both in seconds of the processor; None outside, and
    in one that is not known yet. lasted: how long those of each kind took that were done.
    """

    marks: int = 0
    slow: int = 0
    compiling: bool = False
    work: tuple[float, float] | None = None
    lasted: dict = field(default_factory=dict)

    def working(self):
        """Return the seconds that its familiar work has taken so far, and the longest before; or 0 and None."""
        work = self.work  # once: another thread may be asking
        return (time.process_time() - work[0], work[1]) if work else (0.0, None)


pulse = Pulse()


def stage():
    """Begin a stage."""
    pulse.marks = (pulse.marks // STAGE + 1) * STAGE


def mark(count=1):
    """Pass a mark; many at once where this process has nothing to do in a stage but to wait."""
    pulse.marks += count


@contextmanager
def slow():
    """Inside, the process may rest for long although others wait for it, as when it reads or writes files."""
    pulse.slow += 1
    try:
        yield
    finally:
        pulse.slow -= 1


@contextmanager
def familiar(*kind):
    """Inside, the process does a work of a kind that comes again and again; `kind` says all that its length depends on.

    The first `WARM_UP` works of a kind may take any time, as those do of which a first one is still to be counted.
    """
    count, longest = pulse.lasted.get(kind, (0, None))
    began = time.process_time()
    pulse.work = None if longest is None else (began, longest)
    try:
        yield
    finally:
        pulse.work = None
    took = time.process_time() - began
    pulse.lasted[kind] = (count + 1, max(took, longest or 0.0) if count >= WARM_UP else None)


def compiling_is_slow():
    """Let the process be slow whenever torch compiles, in whatever work: a new kind of batch may come at any time."""
    from torch._dynamo import callback  # takes a second, which an optimiser of torch has taken already

    if _compiling not in callback.callback_handler.start_callbacks:
        callback.on_compile_start(_compiling)
        callback.on_compile_end(_compiled)


def _compiling(*_):
    pulse.compiling = True


def _compiled(*_):
    pulse.compiling = False
