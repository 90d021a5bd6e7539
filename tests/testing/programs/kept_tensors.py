"""Tests that fail with tensors in their frames, one that finds nothing of them, and one that keeps a tensor."""

import pytest
import torch

import simgpu

kept = []


@pytest.mark.sim_gpus(4)
def test_fails():
    kept = torch.ones(1024, device="sim:3")
    itself = [kept]
    itself.append(itself)
    assert kept.sum() == 0


@pytest.mark.sim_ranks(4)
def test_fails_on_ranks():
    kept = torch.ones(1024, device="sim")
    assert kept.sum() == 0


@pytest.mark.sim_gpus(1)
def test_next():
    assert torch.sim.memory_allocated() == 0


def test_keeps(sim_gpus):
    kept.append(torch.ones(3, device="sim:1"))


def test_lets_go():
    kept.clear()
    simgpu.disable()
