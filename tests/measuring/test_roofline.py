"""The roofline: counts against formulas, and roofs against published figures."""

import re

import pytest
import torch

from d2lmini.measuring import memory_hierarchy, roofline
from d2lmini.measuring.roofline import Operation, Roof, count
from simgpu.hardware import links, op_costs

V100 = links.GPUS["V100-SXM2-16GB"]


def meta(*shape, dtype=torch.float32):
    return torch.empty(shape, device="meta", dtype=dtype)


def test_the_roof_has_a_slope_a_ridge_and_a_flat_part():
    roof = Roof("a", 200.0, 50.0)
    assert roof.ridge == 4
    assert [roof.attainable(x) for x in (0, 1, 2, 4, 5, 100)] == [0, 50, 100, 200, 200, 200]


@pytest.mark.parametrize(
    ("function", "shapes", "flops", "numbers", "kind"),
    [
        (torch.mm, [(3, 5), (5, 7)], 2 * 3 * 5 * 7, 15 + 35 + 21, "gemm"),
        (torch.add, [(100,), (100,)], 100, 300, "pointwise"),
        (torch.Tensor.add_, [(100,), (100,)], 100, 300, "pointwise"),
        (torch.sum, [(100,)], 100, 101, "reduction"),
        (
            torch.conv2d,
            [(2, 3, 10, 12), (5, 3, 3, 3)],
            2 * (2 * 5 * 8 * 10) * (3 * 3 * 3),
            2 * 3 * 10 * 12 + 5 * 3 * 3 * 3 + 2 * 5 * 8 * 10,
            "conv",
        ),  # without rounding up to tiles
    ],
)
@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64], ids=str)
def test_operations_are_counted(function, shapes, flops, numbers, kind, dtype):
    found = count("an operation", function, *(meta(*shape, dtype=dtype) for shape in shapes))
    said = "tf32" if kind == "conv" and dtype == torch.float32 else str(dtype).removeprefix("torch.")
    assert found == Operation("an operation", flops, numbers * dtype.itemsize, kind, said)


def test_real_tensors_are_counted_like_those_without_data():
    real = count("product", torch.mm, torch.ones(4, 6), torch.ones(6, 2))
    assert real == count("product", torch.mm, meta(4, 6), meta(6, 2))
    assert real.intensity == real.flops / real.nbytes


@pytest.mark.parametrize(
    ("function", "found"), [(lambda x: x.view(-1), "0 (none)"), (lambda x: (x + 1) * 2, "2 (add, mul)")]
)
def test_one_operation_at_a_time(function, found):
    with pytest.raises(ValueError, match=re.escape(found)):
        count("odd", function, meta(4))


def test_gpu_roofs_are_what_the_maker_publishes():
    assert roofline.gpu_roof(V100) == Roof("V100-SXM2-16GB", 15.7e12, 898.6e9)
    assert roofline.gpu_roof(V100, "gemm", "float16").flops_per_s == 125e12
    assert roofline.gpu_roof(V100).ridge == pytest.approx(17.5, abs=0.05)


@pytest.mark.parametrize("name", links.GPUS)
def test_the_cost_model_stays_below_the_roof(name):
    gpu = links.GPUS[name]
    for example, (function, tensors) in roofline.examples(device="meta").items():
        op = count(example, function, *tensors)
        rate = roofline.gpu_flops_per_s(op, gpu)
        assert 0 < rate < roofline.gpu_roof(gpu, op.kind, op.dtype).attainable(op.intensity)
        assert rate * op_costs.operation_seconds(op.flops, op.nbytes, gpu, op.kind, op.dtype) == pytest.approx(op.flops)


def test_examples_stream_what_they_are_told_and_lie_on_both_sides():
    intensity = {}
    for name, (function, tensors) in roofline.examples(2**20, "meta").items():
        op = count(name, function, *tensors)
        intensity[name] = op.intensity
        if name in ("add", "sum"):
            assert op.flops == 2**20
    assert intensity["add"] < intensity["sum"] < intensity["matrix × vector"] < 1
    assert intensity["matmul 64"] < intensity["matmul 256"] < intensity["matmul 1024"]


def test_what_is_measured_lies_under_its_roof(monkeypatch):
    """Measured quickly, in this process, with sets of 256 KiB and few operations."""
    monkeypatch.setattr(memory_hierarchy, "working_sets", lambda: [2**18])
    few = {name: call for name, call in roofline.examples(2**15).items() if name in ("add", "matmul 64")}
    monkeypatch.setattr(roofline, "examples", lambda elements: few)
    roof, rows = roofline.measure_here(repeat=6)
    assert [op.name for op, _ in rows] == ["add", "matmul 64"]
    assert roof.flops_per_s == pytest.approx(max(op.flops / took.seconds[0] for op, took in rows))
    assert roof.bytes_per_s >= max(op.nbytes / took.seconds[0] for op, took in rows)
    assert {len(took.seconds) for _, took in rows} == {6}


def test_too_little_memory_is_said_before_anything_is_made(monkeypatch):
    monkeypatch.setattr(memory_hierarchy, "working_sets", lambda: [2**50])
    with pytest.raises(MemoryError, match="the roofline needs"):
        roofline.measure_here()
