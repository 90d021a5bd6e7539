"""Gradients reduced while backward runs: the same sums as afterwards, each bucket once, and less time."""

import gc
import weakref
from itertools import pairwise

import pytest
import torch
from torch import nn

import simgpu
from d2lmini.collectives import on_devices
from d2lmini.data_parallel import by_hand
from d2lmini.data_parallel.reducer import OverlappedAllreduce

WIDTHS = (3, 5, 2, 4)


def nets(devices):
    made = []
    for device in devices:
        torch.manual_seed(0)
        made.append(nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(WIDTHS))).double().to(device))
    return made


def backward(made, step=0):
    """Give each replica its own data and run backward."""
    for rank, net in enumerate(made):
        X = torch.arange(6.0, dtype=torch.float64).reshape(2, 3) * 10**rank + step
        net(X.to(next(net.parameters()).device)).sin().sum().backward()


def sums(devices, steps=1):
    """Return the gradients' sums the plain way: all of backward, then one addition a parameter."""
    made = nets(devices)
    for step in range(steps):
        for net in made:
            net.zero_grad()
        backward(made, step)
    return [sum(p.grad.cpu() for p in row) for row in zip(*(net.parameters() for net in made), strict=True)]


@pytest.mark.parametrize(("where", "k"), [("cpu", 1), ("cpu", 3), ("sim", 2), ("sim", 3)])
@pytest.mark.parametrize("bucket_bytes", [1, 100, 2**20])
@pytest.mark.parametrize("allreduce", [on_devices.allreduce, by_hand.allreduce], ids=["ring", "first"])
def test_every_replica_gets_the_sum(where, k, bucket_bytes, allreduce):
    simgpu.enable(3)
    devices = [torch.device(where, i) if where == "sim" else torch.device("cpu") for i in range(k)]
    made = nets(devices)
    reducer = OverlappedAllreduce([net.parameters() for net in made], bucket_bytes, allreduce)
    for step in range(3):
        for net in made:
            net.zero_grad(set_to_none=step == 1)  # also in place, into views of a bucket
        backward(made, step)
        reducer.finish()
    for net in made:
        for p, want in zip(net.parameters(), sums(devices, 3), strict=True):
            torch.testing.assert_close(p.grad.cpu(), want, rtol=1e-12, atol=1e-12)


def test_buckets_go_from_the_last_parameter_and_each_goes_once():
    sizes = []

    def note(tensors):
        sizes.append([t.numel() for t in tensors])
        by_hand.allreduce(tensors)

    made = nets(["cpu"] * 2)
    reducer = OverlappedAllreduce([net.parameters() for net in made], 8 * 14, note)
    backward(made[:1])
    assert sizes == []  # the other replica has nothing yet
    made[1](torch.ones(1, 3, dtype=torch.float64)).sum().backward()
    assert sizes == [[14, 14], [10, 10], [5, 5], [15, 15]]  # b3 W3 b2, W2, b1, W1
    reducer.finish()
    assert len(sizes) == 4


def test_parameters_without_gradients():
    simgpu.enable(2)
    made = nets([torch.device("sim", i) for i in range(2)])
    reducer = OverlappedAllreduce([net.parameters() for net in made], 2**20)
    made[0][1](torch.ones(1, 5, dtype=torch.float64, device="sim:0")).sum().backward()  # one layer, of one replica
    reducer.finish()
    for net in made:
        assert net[1].weight.grad.tolist() == [[1.0] * 5] * 2
        assert net[0].weight.grad is net[2].weight.grad is None  # in no replica: left alone
    reducer.finish()  # nothing more happens to what is there
    backward(made)
    with pytest.raises(RuntimeError, match="call finish"):
        backward(made)


def test_its_hooks_go_with_it_and_so_do_replicas():
    """A model may be trained by one trainer after another."""
    layer, called = nn.Linear(2, 2), []
    layer.weight.register_post_accumulate_grad_hook(called.append)
    for _ in range(3):
        finish = OverlappedAllreduce([list(layer.parameters())], allreduce=lambda tensors: None).finish
    assert [len(p._post_accumulate_grad_hooks) for p in layer.parameters()] == [2, 1]
    layer(torch.ones(1, 2)).sum().backward()
    finish()
    del finish
    assert [len(p._post_accumulate_grad_hooks) for p in layer.parameters()] == [1, 0]
    layer(torch.ones(1, 2)).sum().backward()
    assert called == [layer.weight] * 2
    watched = weakref.ref(layer.bias)
    called.clear()
    del layer
    gc.collect()
    assert watched() is None
