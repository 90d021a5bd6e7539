"""How far this process has come, as a number: what `watch` tells the other ranks about once a second.

    stage        a batch, an evaluation's batch, an exchange of objects: all ranks begin the same ones in the same order
    mark         inside a stage, before this process waits for others

The rank with the fewest marks is thus the one that the others wait for.
"""

from contextlib import contextmanager
from dataclasses import dataclass

STAGE = 1_000_000  # marks: more than any stage has, so that ranks are equal again when the next one begins


@dataclass
class Pulse:
    """How many marks this process has passed, and how many nested `slow` sections it is in."""

    marks: int = 0
    slow: int = 0


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
