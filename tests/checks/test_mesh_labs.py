"""The lab on placements: unusual right answers pass, and what ranks share without a message does not."""

import pytest
import torch.distributed as dist
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard

from d2lmini import checks


def by_hand(x, y, w, mesh):
    """No DTensor: the gradient's formula, and an all-reduce over the data's group alone."""
    gradient = x.T @ (x @ w - y) * (2 / y.numel() / mesh.size())
    dist.all_reduce(gradient, group=mesh.get_group("data"))
    return w - 0.1 * gradient


def declared_afterwards(x, y, w, mesh):
    """Only the gradient becomes a DTensor, a sum along one axis; the columns' mean is divided by hand."""
    w = w.clone().requires_grad_()
    ((x @ w - y) ** 2).mean().div(mesh.size()).backward()
    whole = DTensor.from_local(w.grad, mesh, [Partial(), Shard(1)]).redistribute(mesh, [Replicate(), Shard(1)])
    return w.detach() - 0.1 * whole.to_local()


def without_autograd(x, y, w, mesh):
    """The gradient is a product of DTensors, and the update asks for the all-reduce through its placements."""
    x = DTensor.from_local(x, mesh, (Shard(0), Replicate()))
    y = DTensor.from_local(y, mesh, (Shard(0), Shard(-1)))
    w = DTensor.from_local(w, mesh, (Replicate(), Shard(1)))
    gradient = x.T @ ((x @ w - y) * (2 / y.numel()))
    return w.to_local() - 0.1 * gradient.redistribute(mesh, w.placements).to_local()


@pytest.mark.parametrize("answer", [by_hand, declared_afterwards, without_autograd])
def test_an_unusual_step_is_right(answer):
    assert checks.mesh_step(answer)


def test_memory_that_ranks_share_is_no_message(capsys):
    shared = {}

    def through_memory(x, y, w, mesh):
        shared[dist.get_rank()] = x.T @ (x @ w - y) * (2 / y.numel() / mesh.size())
        dist.barrier()
        gradient = sum(shared[rank].to(x.device) for rank in mesh.mesh[:, mesh.get_local_rank("columns")].tolist())
        dist.barrier()
        return w - 0.1 * gradient

    assert not checks.mesh_step(through_memory)
    assert "too few" in capsys.readouterr().out
