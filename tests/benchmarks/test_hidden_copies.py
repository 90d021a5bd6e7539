"""What a second stream hides: two streams hide what one stream can't, and only from pinned memory."""

import sys
from pathlib import Path

import pytest
import torch

import simgpu

sys.path.insert(0, str(Path(__file__).parents[2] / "benchmarks"))
from copy_overlap import hidden, measure_overlap


@pytest.fixture
def shapes():
    """GPUs on which products take no time but the simulated one."""
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16", shapes_only=True)
    yield [torch.device("sim", i) for i in range(2)]
    simgpu.disable()


def medians(times):
    return {name: measurement.median for name, measurement in times.items()}


def test_only_a_second_stream_hides_a_pinned_copy(shapes):
    times = measure_overlap(shapes[1], nbytes=2**22)
    t = medians(times)
    assert t["blocking"] == pytest.approx(t["copy"] + t["products"], rel=0.01)
    assert 0.9 * t["blocking"] < t["one stream"] <= t["blocking"]
    assert t["two streams"] == pytest.approx(max(t["copy"], t["products"]), rel=0.1)
    assert hidden(times) > 0.9
    assert 0.5 < t["products"] / t["copy"] < 2


def test_nothing_is_hidden_from_pageable_memory(shapes):
    times = measure_overlap(shapes[0], nbytes=2**20, pinned=False)
    t = medians(times)
    assert t["two streams"] == pytest.approx(t["blocking"])
    assert hidden(times) == pytest.approx(0, abs=0.01)


def test_the_two_run_in_two_streams_at_the_same_time(shapes):
    with simgpu.trace() as trace:
        measure_overlap(shapes[0], nbytes=2**22)
    copies = [s for s in trace.spans if s.kind == "copy"]
    products = [s for s in trace.spans if (s.kind, s.name) == ("operation", "mm")]
    beside = [c for c in copies if any(p.start < c.end and c.start < p.end for p in products)]
    assert beside == copies[-6:]  # those of the last variant, and no others


def test_what_has_no_streams_says_so(shapes):
    with pytest.raises(ValueError, match="streams, got cpu"):
        measure_overlap("cpu")
    with pytest.raises(ValueError, match="got 3"):
        measure_overlap(shapes[0], nbytes=3)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_real_cuda():
    assert set(measure_overlap("cuda:0")) >= {"blocking", "two streams"}
