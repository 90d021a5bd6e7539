"""Gradients in buckets: how many all-reduces, of what, and that no gradient is left out, doubled or copied back."""

import pytest
import torch
from torch import nn

from d2lmini.collectives.buckets import reduce_gradients
from d2lmini.data_parallel import by_hand


def replicas(count, dtype=torch.float64):
    """Parameters of 6, 2, 8 and 4 numbers, the last in float32; the third lacks gradients, whose digits count ranks."""
    made = []
    for rank in range(count):
        module = nn.ParameterList([nn.Parameter(torch.zeros(n, dtype=dtype)) for n in (6, 2, 8)])
        module.append(nn.Parameter(torch.zeros(2, 2)))
        for p in (module[0], module[1], module[3]):
            p.grad = torch.arange(1.0, p.numel() + 1).to(p.dtype).view_as(p) * 10**rank
        made.append(module)
    return made


@pytest.mark.parametrize(
    ("bucket_bytes", "sizes"), [(0, [4, 2, 6]), (47, [4, 2, 6]), (63, [4, 2, 6]), (64, [4, 8]), (10**9, [4, 8])]
)
def test_buckets_hold_what_fits_of_one_type(bucket_bytes, sizes):
    modules, seen = replicas(3), []

    def allreduce(tensors):
        seen.append([t.numel() for t in tensors])
        by_hand.allreduce(tensors)

    reduce_gradients(modules, allreduce, bucket_bytes)
    assert seen == [[size] * 3 for size in sizes]
    for module in modules:
        assert module[2].grad is None
        for p in (module[0], module[1], module[3]):
            assert p.grad.dtype == p.dtype
            assert torch.equal(p.grad.flatten(), 111 * torch.arange(1.0, p.numel() + 1).to(p.dtype))
    storages = [p.grad.untyped_storage().data_ptr() for module in modules for p in module if p.grad is not None]
    assert len(set(storages)) == 3 * len(sizes)  # views of the buckets, and no bucket is shared


def test_a_gradient_that_some_lack_counts_as_zero_there():
    modules, counted = replicas(3), [101.0 * i for i in range(1, 7)]
    modules[1][0].grad = None
    reduce_gradients(modules, by_hand.allreduce, 0)
    assert [module[0].grad.tolist() for module in modules] == [counted] * 3


def test_a_gradient_in_another_order_of_memory_keeps_its_places():
    modules = [nn.Conv2d(2, 3, 2, bias=False) for _ in range(2)]
    for rank, module in enumerate(modules):
        values = torch.arange(24.0).reshape(3, 2, 2, 2) * 10**rank
        module.weight.grad = values.to(memory_format=torch.channels_last)
    reduce_gradients([m.parameters() for m in modules], by_hand.allreduce, 10**6)
    assert all(torch.equal(m.weight.grad, torch.arange(24.0).reshape(3, 2, 2, 2) * 11) for m in modules)
