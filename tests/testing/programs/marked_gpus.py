"""Tests with GPUs: those of the fixture alone, none, those of a marker, and those of a class's marker."""

import pytest
import torch

import simgpu


def test_two(sim_gpus):
    assert sim_gpus == [torch.device("sim:0"), torch.device("sim:1")]
    assert torch.accelerator.current_accelerator().type == "sim" or torch.cuda.is_available()


def test_none():
    assert not simgpu.is_enabled()


@pytest.mark.sim_gpus(3, gpu="V100-SXM2-16GB", memory=4096)
def test_marked():
    assert simgpu.machine().gpu.name == "V100-SXM2-16GB"
    assert torch.sim.device_count() == 3
    with pytest.raises(torch.OutOfMemoryError):
        torch.ones(2048, device="sim:2")


@pytest.mark.sim_gpus(2)
class TestOfAClass:
    def test_method(self, sim_gpus):
        assert len(sim_gpus) == 2
