"""What a layer computes and holds: against closed formulas, PyTorch's own counter, and published networks."""

import gc

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from d2lmini.measuring.layer_costs import layer_macs, profile
from d2lmini.models.alexnet import WIDTHS_2014, alexnet
from d2lmini.models.lenet import LeNet
from d2lmini.models.resnet import resnet50


def meta(*shape):
    return torch.empty(*shape, device="meta")


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Linear(7, 5), (7,)),
        (nn.Linear(7, 5, bias=False), (3, 7)),
        (nn.Linear(1, 1), (1,)),
        (nn.Conv1d(4, 6, 3, stride=2), (4, 11)),
        (nn.Conv2d(4, 6, (3, 5), padding=(1, 2)), (4, 9, 8)),
        (nn.Conv2d(4, 6, 3, groups=2, bias=False), (4, 7, 7)),
        (nn.Conv2d(4, 8, 3, groups=4, dilation=2, stride=3), (4, 13, 11)),
        (nn.Conv3d(2, 3, 2), (2, 4, 5, 6)),
    ],
    ids=str,
)
@pytest.mark.parametrize("batch", [0, 1, 3])
def test_macs_are_those_of_pytorchs_counter(layer, shape, batch):
    rows = profile(layer.to("meta"), meta(batch, *shape))
    assert rows[0].macs == rows.macs  # these are the counter's


@pytest.mark.parametrize(
    ("make", "shape", "parameters", "gmacs", "digits"),
    [
        (lambda: alexnet(groups=2, norm=True, dropout=0.5), (3, 224, 224), 60_965_224, 0.724, 3),
        (lambda: alexnet(widths=WIDTHS_2014), (3, 224, 224), 61_100_840, 0.71, 2),  # torchvision's documentation
        (lambda: resnet50(late_stride=True), (3, 224, 224), 25_557_032, 4.09, 2),  # torchvision's documentation
    ],
)
def test_published_networks(make, shape, parameters, gmacs, digits):
    with torch.device("meta"):
        model = make()
    rows = profile(model, meta(1, *shape))
    assert rows.parameters == sum(row.parameters for row in rows) == parameters
    assert round(rows.macs / 1e9, digits) == gmacs
    assert (rows.elsewhere_macs, rows.elsewhere_parameters, rows.unknown) == (0, 0, [])


def test_bytes_of_a_layer():
    with torch.no_grad():  # what autograd would keep is told all the same
        (row,) = profile(nn.Conv2d(3, 8, 5), torch.zeros(2, 3, 12, 12))
    assert (row.name, row.kind) == ("(model)", "Conv2d")
    assert row.input_bytes == 2 * 3 * 12 * 12 * 4
    assert row.output_bytes == 2 * 8 * 8 * 8 * 4
    assert row.weight_bytes == (8 * 3 * 25 + 8) * 4
    assert row.working_set == row.input_bytes + row.output_bytes + row.weight_bytes
    assert row.intensity == 2 * row.macs / row.working_set
    assert row.saved_bytes == row.input_bytes
    half = profile(nn.Conv2d(3, 8, 5).half().to("meta"), meta(2, 3, 12, 12).half())[0]
    assert 2 * half.working_set == row.working_set
    assert half.macs == row.macs


def test_views_and_work_in_place_take_no_new_memory():
    rows = profile(nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Flatten(), nn.Identity()), torch.ones(2, 4))
    assert [row.output_bytes for row in rows] == [32, 0, 0, 0]
    assert [row.input_bytes for row in rows] == [32, 32, 32, 32]


def test_a_layer_called_twice_has_two_rows_and_its_parameters_once():
    layer = nn.Linear(6, 6)
    rows = profile(nn.Sequential(layer, nn.ReLU(), layer), torch.ones(2, 6))
    assert [row.name for row in rows] == ["0", "1", "0"]
    assert [row.parameters for row in rows] == [42, 0, 0]
    assert [row.weight_bytes for row in rows] == [168, 0, 168]
    assert rows.parameters == 42
    assert rows.macs == sum(row.macs for row in rows) == 2 * 72
    other = nn.Linear(6, 6)
    other.weight = layer.weight  # weights that two layers share are counted once
    rows = profile(nn.Sequential(layer, other), torch.ones(2, 6))
    assert [row.parameters for row in rows] == [42, 6]
    assert [row.weight_bytes for row in rows] == [168, 168]
    assert (rows.parameters, rows.elsewhere_parameters) == (48, 0)


class Functions(nn.Module):
    """Has a product and a weight that belong to no layer, and a layer that is never called."""

    def __init__(self):
        super().__init__()
        self.inner = nn.ModuleDict({"a": nn.Sequential(nn.Linear(5, 5))})
        self.weight, self.idle = nn.Parameter(torch.ones(5, 4)), nn.Linear(2, 2)

    def forward(self, X, *, bias=None):
        return F.relu(self.inner["a"](X) @ self.weight + bias)


def test_what_stands_in_no_layer_is_reported():
    rows = profile(Functions(), torch.ones(3, 5), bias=torch.ones(4))
    assert [row.name for row in rows] == ["inner.a.0"]
    assert rows.macs == 3 * 25 + 3 * 20
    assert rows.elsewhere_macs == 3 * 20
    assert rows.elsewhere_parameters == 20 + 6
    assert rows.elsewhere_saved == 3 * 5 * 4 + 3 * 4 * 4  # the product's input and the ReLU's output
    assert "elsewhere" in str(rows)


class Odd(nn.Module):
    """A layer of its own kind, with a product that no formula knows."""

    def forward(self, X):
        return X @ X.T


def test_a_layer_without_a_formula_is_not_silently_free():
    rows = profile(nn.Sequential(nn.Linear(4, 4), Odd()), torch.ones(3, 4))
    assert [row.macs for row in rows] == [48, None]
    assert rows[1].intensity is None
    assert rows.unknown == ["1"]
    assert rows.elsewhere_macs == 36
    text = str(rows)
    assert "?" in text
    assert text.splitlines()[-1] == "? no formula: 1; the sum may leave them out"
    for layer, shape in ((nn.LSTM(3, 4), (2, 1, 3)), (nn.GRU(3, 4), (2, 1, 3)), (nn.Bilinear(3, 3, 2), (1, 3))):
        inputs = [torch.ones(*shape)] * (2 if isinstance(layer, nn.Bilinear) else 1)
        assert profile(layer, *inputs)[0].macs is None, type(layer).__name__
    assert layer_macs(nn.MultiheadAttention(4, 2), torch.ones(1, 1, 4), torch.ones(1, 1, 4)) is None


def test_layers_that_multiply_no_matrices_are_free():
    layers = (
        nn.ReLU(),
        nn.BatchNorm2d(4),
        nn.MaxPool2d(2),
        nn.Dropout(),
        nn.GroupNorm(2, 4),
        nn.LocalResponseNorm(3),
        nn.Upsample(scale_factor=2),
        nn.ZeroPad2d(1),
        nn.Flatten(),
        nn.Identity(),
        nn.Softmax(dim=1),
    )
    for layer in layers:
        rows = profile(layer, torch.ones(2, 4, 4, 4))
        assert (rows[0].macs, rows.unknown) == (0, []), type(layer).__name__
    assert profile(nn.Embedding(9, 4), torch.tensor([1, 2]))[0].macs == 0
    (row,) = rows = profile(nn.Sequential(), torch.ones(2))  # as for the shortcut of many residual networks
    assert (row.macs, row.working_set, rows.macs, rows.parameters, rows.saved_bytes) == (0, 8, 0, 0, 0)
    assert rows.unknown == []


def test_what_has_no_shapes_or_is_no_module_is_refused():
    lazy = nn.LazyLinear(5)  # a subclass, which counts as a linear layer
    with pytest.raises(ValueError, match="uninitialized"):
        profile(lazy, torch.ones(2, 4))
    lazy(torch.ones(2, 4))
    assert profile(lazy, torch.ones(2, 4))[0].macs == 40
    assert profile(type("Wide", (nn.Linear,), {})(4, 5), torch.ones(2, 4))[0].macs == 40
    with pytest.raises(TypeError, match="function"):
        profile(F.softmax, torch.ones(1))


# What is saved, and nothing else changed.


def test_saved_bytes_count_each_memory_once():
    net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 4, 3))
    rows = profile(net, torch.ones(2, 1, 10, 10))
    relu, pooled = 2 * 4 * 8 * 8 * 4, 2 * 4 * 4 * 4
    assert [row.saved_bytes for row in rows] == [2 * 100 * 4, relu, 8 * pooled, 4 * pooled]  # int64 places in the pool
    assert rows.saved_bytes == sum(row.saved_bytes for row in rows)


@pytest.mark.parametrize("make", [LeNet, lambda: nn.Sequential(nn.Conv2d(1, 8, 3), nn.BatchNorm2d(8), nn.Sigmoid())])
def test_saved_bytes_are_what_a_simulated_gpu_holds(make):
    simgpu.enable(2, accelerator=False)
    net, X = make().to("sim:1"), torch.rand(128, 1, 28, 28).to("sim:1")
    rows = profile(net, X)
    gc.collect()
    before = torch.sim.memory_allocated(1)
    Y = net(X)
    held = torch.sim.memory_allocated(1) - before
    last_is_saved = Y.grad_fn.name() == "SigmoidBackward0"
    expected = rows.saved_bytes - X.nbytes + (0 if last_is_saved else Y.nbytes)
    assert held == pytest.approx(expected, abs=512 * len(rows))
    assert rows.macs == profile(make().to("meta"), X.to("meta")).macs
    assert [row.saved_bytes for row in rows] == [row.saved_bytes for row in profile(make(), X.cpu())]


def test_nothing_stays_behind():
    simgpu.enable(2, accelerator=False)
    net, X = LeNet().to("sim:0"), torch.rand(8, 1, 28, 28).to("sim:0")
    gc.collect()
    before = torch.sim.memory_allocated(0)
    for _ in range(2):
        profile(net, X)
        gc.collect()
        assert torch.sim.memory_allocated(0) == before
    assert all(not layer._forward_hooks and not layer._forward_pre_hooks for layer in net.modules())
    assert all(p.grad is None for p in net.parameters())
    broken = nn.Sequential(nn.Linear(3, 3), nn.Linear(4, 4))
    with pytest.raises(RuntimeError, match="shapes"):
        profile(broken, torch.ones(1, 3))
    assert all(not layer._forward_hooks and not layer._forward_pre_hooks for layer in broken.modules())
