"""Shapes only, at full size: what stands for numbers that the host reads, as they were never computed.

loss.item()                    1, False for a bool, and 0 where torch's GradScaler looks for overflow
x.cpu(), print(x)              a tensor of ones, which takes the memory of one number where it is large
torch.save, a checkpoint       an empty file
"""

import os
import sys
from collections import Counter

import torch

from simgpu.ranks.diagnosis import program_frame

_LARGE = 2**20  # elements


class StandIns:
    """Counts by line of the program. say: a function that is given a line to print."""

    def __init__(self, say):
        self._say, self.reads, self.saved = say, Counter(), 0

    def __call__(self, real, dtype=None):
        """Return a tensor on the host for one of shapes only."""
        dtype = dtype or real.dtype
        frame = program_frame(sys._getframe(1))
        if not self.reads:
            self._say("--shapes-only: no numbers are computed; one that the host reads is 1, or False")
        self.reads[f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "torch"] += 1
        value = 0 if dtype == torch.bool or _looks_for_overflow() else 1
        if real.numel() > _LARGE:
            return torch.full((), value, dtype=dtype).expand(real.shape)
        return torch.full(real.shape, value, dtype=dtype)

    def save(self, thing, f, *args, **options):
        """As ``torch.save``, but write nothing; a path becomes an empty file."""
        if not self.saved:
            self._say("--shapes-only: checkpoints are left empty")
        self.saved += 1
        if isinstance(f, (str, os.PathLike)):
            with open(f, "wb"):
                pass


def _looks_for_overflow():
    frame = sys._getframe(2)
    for _ in range(12):
        if frame is None:
            return False
        if frame.f_code.co_filename.endswith("grad_scaler.py"):
            return True
        frame = frame.f_back
    return False
