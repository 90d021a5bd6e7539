"""Memory counted without computing: the same as a simulated GPU counts, and an error at the same place."""

import gc
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from d2lmini import sim
from d2lmini.measuring.footprint import Footprint, largest
from d2lmini.models.lenet import LeNet


def step(net, optimizer, X, y):
    optimizer.zero_grad()
    F.cross_entropy(net(X), y).backward()
    optimizer.step()


def train(device, make, optimizer, batch, shape):
    net = make().to(device)
    optimizer = optimizer(net.parameters())
    for _ in range(2):
        X = torch.zeros(batch, *shape, device=device)
        y = torch.zeros(batch, dtype=torch.long, device=device)
        step(net, optimizer, X, y)


def mixed():
    return nn.Sequential(
        nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(inplace=True), nn.MaxPool2d(2), nn.LocalResponseNorm(3),
        nn.Dropout(), nn.Conv2d(6, 8, 3, groups=2), nn.GELU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.LayerNorm(8),
        nn.Linear(8, 10),
    )  # fmt: skip


OPTIMIZERS = {
    "sgd": partial(torch.optim.SGD, lr=0.1),
    "momentum": partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-4),
    "adam": partial(torch.optim.Adam, foreach=True),  # a device's default, but not the meta device's
}


@pytest.mark.parametrize(("make", "optimizer", "batch"), [
    (LeNet, "adam", 2), (LeNet, "momentum", 33), (mixed, "sgd", 33),
])  # fmt: skip
def test_peak_is_that_of_a_simulated_gpu(make, optimizer, batch):
    sim.enable(1, accelerator=False)
    with Footprint() as footprint:
        train("meta", make, OPTIMIZERS[optimizer], batch, (1, 28, 28))
    gc.collect()
    torch.sim.reset_peak_memory_stats(0)
    before = torch.sim.memory_allocated(0)
    train("sim:0", make, OPTIMIZERS[optimizer], batch, (1, 28, 28))
    assert footprint.peak == torch.sim.max_memory_allocated(0) - before
    assert max(footprint.history) <= footprint.peak


def test_blocks_of_512_bytes_are_counted_until_they_are_gone():
    with Footprint() as footprint:
        a = torch.empty(3, device="meta")
        b = torch.empty(129, device="meta")
        view = b[1:]
        assert footprint.allocated == 512 + 1024
        del b
        assert footprint.allocated == 512 + 1024
        del view, a
    assert footprint.allocated == 0
    assert footprint.peak == 1536


def test_what_was_made_outside_is_counted_when_it_is_named():
    net = nn.Sequential(nn.Linear(128, 128, bias=False), nn.BatchNorm1d(128)).to("meta")
    X = torch.empty(128, device="meta")
    with Footprint() as footprint:
        torch.ones(1000)  # on another device
        assert footprint.allocated == 0
        footprint.hold(net, [X, {"again": X}], 3)
    assert footprint.allocated == 128 * 128 * 4 + 4 * 512 + 512 + 512


def test_the_error_comes_where_the_capacity_ends():
    with Footprint(2**20) as footprint:
        whole = torch.empty(2**18, device="meta")
        del whole
    with pytest.raises(torch.OutOfMemoryError, match=r"1.00 MiB. GPU 0"), footprint:
        torch.empty(2**18 + 1, device="meta")
    assert footprint.peak == 2**20


@pytest.mark.parametrize("limit", [2**30, 5])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 8, 9, 100, 1023])
def test_largest(n, limit):
    asked = []

    def fits(batch):
        asked.append(batch)
        return batch <= n

    assert largest(fits, limit) == min(n, limit)
    assert len(asked) <= 2 * n.bit_length() + 1
    assert 0 not in asked
    assert max(asked) <= limit
    asked.clear()
    assert largest(fits, limit, good=min(n, 2)) == min(n, limit)
    assert min(asked) > min(n, 2)
