"""What an error in the reader's code says, and in which line it was raised."""

import sysconfig
import traceback
from pathlib import Path

import torch

import simgpu

_OTHERS = (  # not the reader's code
    str(Path(__file__).parents[1]),
    *simgpu.__path__,
    str(Path(torch.__file__).parents[1]),
    sysconfig.get_paths()["stdlib"],
)
_NOT_THE_READERS = ", or call simgpu.enable without shapes_only"  # which the check has called


def said(error: BaseException | str) -> str:
    """Return an error's message in one line, without advice that a reader of a lab cannot follow."""
    return " ".join(str(error).split()).replace(_NOT_THE_READERS, "")


def line_of(error: BaseException) -> str:
    """Return " (in line 7)", the innermost line of a notebook's cell that raised `error`; "" where there is none.

    Of a file its name is told too: " (in answer.py:7)".
    """
    frames = [(frame.f_code.co_filename, line) for frame, line in traceback.walk_tb(error.__traceback__)]
    own = [(file, line) for file, line in frames if not file.startswith(_OTHERS)]
    if not own:
        return ""
    file, line = own[-1]
    cell = file.startswith("<") or "ipykernel" in file
    return f" (in line {line})" if cell else f" (in {Path(file).name}:{line})"
