import pytest

from d2lmini import sim


@pytest.fixture
def gpus():
    """Four simulated GPUs of 16 MiB without a clock."""
    sim.enable(4, memory=2**24, clock=False)
