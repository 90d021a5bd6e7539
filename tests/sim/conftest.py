import contextlib

import pytest

from d2lmini import sim


@pytest.fixture
def gpus():
    """Four simulated GPUs of 16 MiB without a clock, for the time of a test."""
    sim.enable(4, memory=2**24, clock=False)
    yield
    with contextlib.suppress(RuntimeError):  # a test that failed keeps its tensors
        sim.disable()
