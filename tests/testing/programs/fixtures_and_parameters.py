"""Tests with parameters and fixtures, on GPUs and on ranks, which share one tmp_path."""

import pytest
import torch
import torch.distributed as dist


@pytest.fixture
def model(sim_gpus):
    return torch.nn.Linear(2, 1).to(sim_gpus[1])


@pytest.mark.parametrize("rows", [1, 2])
def test_model(model, rows):
    assert model(torch.ones(rows, 2, device="sim:1")).shape == (rows, 1)


@pytest.mark.sim_ranks(3)
@pytest.mark.parametrize("start", [1.0, 2.0])
def test_sum(start, tmp_path):
    x = torch.full((2,), start + dist.get_rank(), device="sim")
    dist.all_reduce(x)
    assert x.tolist() == [3 * start + 3] * 2
    (tmp_path / str(dist.get_rank())).touch()
    dist.barrier()
    assert len(list(tmp_path.iterdir())) == 3
