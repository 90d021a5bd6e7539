"""What can go wrong in training, and between processes: each error is one line that says what to do."""

import re
import traceback

from simgpu import RankError

__all__ = ["EXPECTED", "CheckpointError", "DivergedError", "LostRankError", "RankError", "first_line", "sentence"]
EXPECTED = (ValueError, RuntimeError, OSError, ArithmeticError, MemoryError)  # what bad input ends in


class LostRankError(ConnectionError):
    """Another rank has ended, hangs, or has given up waiting."""


class CheckpointError(ValueError):
    """A checkpoint that cannot be read, written or used; the message begins with the file's name."""


class DivergedError(ArithmeticError):
    """A loss that is not a finite number, named by epoch, batch, device and rank; or a parameter that is none."""


def first_line(error):
    """Return the first line of an error's message, or its type's name where it has none."""
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def sentence(error):
    """Return an error's first line; for a kind that tells of a mistake in the program, with its kind and place."""
    line = re.sub(r"\[\S*gloo\S*:\d+\] ", "", first_line(error))  # where in gloo's source
    if isinstance(error, EXPECTED):
        return line
    frames = traceback.extract_tb(error.__traceback__)
    return f"{type(error).__name__}: {line}" + "".join(f" (line {f.lineno} of {f.filename})" for f in frames[-1:])
