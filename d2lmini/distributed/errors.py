"""What can go wrong in training, and between processes: each error is one line that says what to do.

An error's `rank` is the rank that it is about; None where its message names the ranks itself.
"""

import re
import traceback

from d2lmini.wording import first_line, shortened
from simgpu import RankError

__all__ = [
    "EXPECTED",
    "CheckpointError",
    "DivergedError",
    "LostRankError",
    "RankError",
    "UnlikeError",
    "of_rank",
    "sentence",
]
EXPECTED = (ValueError, RuntimeError, OSError, ArithmeticError, MemoryError)  # what bad input ends in


class LostRankError(ConnectionError):
    """Another rank has ended, hangs, or has given up waiting."""


class UnlikeError(ValueError):
    """Ranks that must do the same do not: they differ in model, settings, data or batches."""

    rank = None


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written or used; the message begins with the file's name."""

    rank = None


class DivergedError(ArithmeticError):
    """A loss that is not a finite number, named by epoch, batch, device and rank; or a parameter that is none."""

    rank = None


def sentence(error: BaseException) -> str:
    """Return an error's first line; for a kind that tells of a mistake in the program, with its kind and place."""
    line = shortened(re.sub(r"\[\S*gloo\S*:\d+\] ", "", first_line(error)))  # where in gloo's source
    if isinstance(error, EXPECTED):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {line}" + "".join(f" (line {f.lineno} of {f.filename})" for f in frames[-1:])


def of_rank(error: BaseException, rank: int) -> str:
    """Return an error's sentence after the rank that it is about: its own `rank`, else the one that raised it."""
    rank = getattr(error, "rank", rank)
    return sentence(error) if rank is None else f"rank {rank}: {sentence(error)}"
