"""Tests that fail on ranks: one by an assertion of rank 1, one by a deadlock."""

import pytest
import torch.distributed as dist


@pytest.mark.sim_ranks(2)
def test_value():
    assert dist.get_rank() == 0


@pytest.mark.sim_ranks(2)
def test_deadlock():
    if dist.get_rank() == 0:
        dist.barrier()
