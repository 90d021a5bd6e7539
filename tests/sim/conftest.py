import pytest

import simgpu


@pytest.fixture
def gpus():
    """Four simulated GPUs of 16 MiB without a clock."""
    simgpu.enable(4, memory=2**24, clock=False)
