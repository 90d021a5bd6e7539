"""How far this process has come, as a number: what `watch` tells the other ranks about once a second.

All ranks pass the same marks in the same order, so the rank with the fewest is the one that the others wait for.
"""

from contextlib import contextmanager
from dataclasses import dataclass


@dataclass
class Pulse:
    """How many marks this process has passed, and how many nested `slow` sections it is in."""

    marks: int = 0
    slow: int = 0


pulse = Pulse()


def mark():
    """Pass a mark."""
    pulse.marks += 1


@contextmanager
def slow():
    """Inside, the process may rest for long although others wait for it, as when it reads or writes files."""
    pulse.slow += 1
    try:
        yield
    finally:
        pulse.slow -= 1
