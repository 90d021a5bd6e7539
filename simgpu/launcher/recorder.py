"""What is noted while a program runs: steps, peaks of memory, bytes, and with a report or a trace every span."""

import contextlib
import os
import sys
from collections import defaultdict
from itertools import pairwise

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

import simgpu
from simgpu.accounting.allocator import Running
from simgpu.accounting.queues import PS
from simgpu.device.state import state
from simgpu.ranks.diagnosis import program_frame
from simgpu.torch_glue.here import here


class Recorder:
    """Used as a context manager around a run.

    every_span: keep the timeline; lines: note which line of the program holds which memory.
    """

    def __init__(self, every_span=False, lines=False):
        self.trace, self._lines = simgpu.trace() if every_span else None, lines
        self.ends, self.peaks, self.held = {}, defaultdict(int), {}  # by rank; by GPU's number; by GPU's number
        self.steps = defaultdict(list)  # by rank, the moments at which an optimizer's steps are done on the GPU

    def __enter__(self):
        self._hook = register_optimizer_step_post_hook(self._step)
        self._stack = contextlib.ExitStack()
        if self.trace:
            self._stack.enter_context(self.trace)
        Running.line = line_of_program if self._lines else None
        return self

    def __exit__(self, *error):
        Running.line = None
        self._stack.close()
        self._hook.remove()

    @contextlib.contextmanager
    def rank(self, number):
        """Note the calling rank's end, and what memory it has used."""
        try:
            yield
        finally:
            first = here().number - here().device
            for gpu in state.gpus:
                use = gpu.allocator.use()
                if use.peak >= self.peaks[first + gpu.index] and use.peak:
                    self.peaks[first + gpu.index], self.held[first + gpu.index] = use.peak, use.at_peak()
            self.ends[number] = max(self.ends.get(number, 0), simgpu.now(), *self._device_ends())

    def _device_ends(self):
        return [simgpu.clock().mark(simgpu.clock().current_stream(torch.cuda.current_device())) / PS]

    def _step(self, optimizer, args, options):
        if here() is not None:
            self.steps[here().number].append(self._device_ends()[0])

    def seconds(self):
        """Return the simulated seconds from the beginning to the end of the last rank."""
        return max(self.ends.values(), default=0.0)

    def peak(self):
        """Return the most bytes in use on any GPU, and the GPU's number."""
        where = max(self.peaks, key=self.peaks.get, default=0)
        return self.peaks.get(where, 0), where

    def sent(self):
        """Return the bytes that GPUs sent one another by collectives and messages."""
        return sum(nbytes for _, nbytes, _ in simgpu.clock().traffic.values())

    def step_seconds(self):
        """Return the median of the simulated seconds from one step of rank 0 to the next, None with fewer than two."""
        moments = self.steps.get(0, [])
        between = sorted(b - a for a, b in pairwise(moments))
        return between[len(between) // 2] if between else None


def line_of_program():
    """Return ``train.py:42``: the line of the program that runs, or "torch" where there is none."""
    frame = program_frame(sys._getframe(2))
    return f"{os.path.basename(frame.f_code.co_filename)}:{frame.f_lineno}" if frame else "torch"
