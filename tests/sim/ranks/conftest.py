import pytest

import simgpu


@pytest.fixture(scope="module")
def gpus():
    """Four simulated GPUs with a clock, joined by NVLink through a switch, for the tests of a file."""
    simgpu.enable(4, gpu="V100-SXM2-16GB", link="NVLink2")
