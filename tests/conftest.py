"""What all tests share: the modules of tools/ can be imported by their names, and files do not disturb one another."""

import functools
import gc
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tools"))


@pytest.fixture(autouse=True, scope="module")
def simulated_gpus_are_left_empty():
    """Take what a file's tests left on simulated GPUs off them: the next file may want other GPUs, or to count bytes.

    A report or a failed test may hold tensors for longer than the test; in which file is up to the order of the files.
    """
    yield
    if "d2lmini.sim.live" not in sys.modules:
        return
    import torch

    from d2lmini.sim import live

    gc.collect()
    for tensor in live.tensors():
        tensor._real = torch.empty(0)
        tensor.__class__ = _left_behind()


@functools.cache
def _left_behind():
    from d2lmini.sim.tensor import SimTensor

    return type("LeftBehind", (SimTensor,), {})
