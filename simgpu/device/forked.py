"""Processes forked from this one: as CUDA's, the simulated GPUs cannot be used there, and an error says so at once."""

import os

import torch

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor


class Gone(list):
    """The GPUs in a forked process: they can be counted, and nothing else."""

    def __getitem__(self, index):
        raise refusal()

    def __iter__(self):
        raise refusal()


def is_forked():
    """Return whether this process was forked from one with simulated GPUs."""
    return type(state.gpus) is Gone


def refusal():
    """Return CUDA's error."""
    kind = "CUDA" if state.as_cuda else "sim"
    return RuntimeError(
        f"Cannot re-initialize {kind} in forked subprocess. To use {kind} with multiprocessing, you must use the "
        "'spawn' start method"
    )


def check(data):
    """Return what a worker is to send; raises RuntimeError if there is a tensor on a simulated GPU in it."""
    if is_forked():
        waiting = [data]
        for thing in waiting:  # grows meanwhile
            if isinstance(thing, SimTensor):
                raise refusal()
            if isinstance(thing, dict):
                waiting.extend(thing.values())
            elif isinstance(thing, (list, tuple)):
                waiting.extend(thing)
            elif hasattr(thing, "__dict__") and not isinstance(thing, (type, torch.Tensor)):
                waiting.extend(vars(thing).values())
    return data


def _take_away():
    if state.gpus:
        state.gpus = Gone(list.__iter__(state.gpus))


os.register_at_fork(after_in_child=_take_away)
