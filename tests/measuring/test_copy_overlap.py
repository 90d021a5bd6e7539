"""Copies underneath computation: two streams hide what one stream can't, and a prefetched batch waits for its copy."""

import pytest
import torch

from d2lmini import sim
from d2lmini.measuring import copy_overlap


@pytest.fixture
def gpus():
    sim.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16")
    return [torch.device("sim", i) for i in range(2)]


@pytest.fixture
def shapes():
    """GPUs on which products take no time but the simulated one."""
    sim.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16", shapes_only=True)
    yield [torch.device("sim", i) for i in range(2)]
    sim.disable()


def medians(times):
    return {name: measurement.median for name, measurement in times.items()}


def test_only_a_second_stream_hides_a_pinned_copy(shapes):
    times = copy_overlap.measure_overlap(shapes[1], nbytes=2**22)
    t = medians(times)
    assert t["blocking"] == pytest.approx(t["copy"] + t["products"], rel=0.01)
    assert 0.9 * t["blocking"] < t["one stream"] <= t["blocking"]
    assert t["two streams"] == pytest.approx(max(t["copy"], t["products"]), rel=0.1)
    assert copy_overlap.hidden(times) > 0.9
    assert 0.5 < t["products"] / t["copy"] < 2


def test_nothing_is_hidden_from_pageable_memory(shapes):
    times = copy_overlap.measure_overlap(shapes[0], nbytes=2**20, pinned=False)
    t = medians(times)
    assert t["two streams"] == pytest.approx(t["blocking"])
    assert copy_overlap.hidden(times) == pytest.approx(0, abs=0.01)


def test_the_two_run_in_two_streams_at_the_same_time(shapes):
    with sim.trace() as trace:
        copy_overlap.measure_overlap(shapes[0], nbytes=2**22)
    copies = [s for s in trace.spans if s.kind == "copy"]
    products = [s for s in trace.spans if (s.kind, s.name) == ("operation", "mm")]
    beside = [c for c in copies if any(p.start < c.end and c.start < p.end for p in products)]
    assert beside == copies[-6:]  # those of the last variant, and no others


def test_what_has_no_streams_says_so(gpus):
    with pytest.raises(ValueError, match="streams, got cpu"):
        copy_overlap.measure_overlap("cpu")
    with pytest.raises(ValueError, match="got 3"):
        copy_overlap.measure_overlap(gpus[0], nbytes=3)


@pytest.mark.parametrize("device", ["cpu", "sim:1"])
def test_prefetch_yields_what_it_is_given(gpus, device):
    batches = [(torch.full((3, 2), float(i)), torch.tensor(i)) for i in range(5)]
    assert list(copy_overlap.prefetch([], device)) == []
    assert list(copy_overlap.prefetch(iter([]), device)) == []
    for given in (batches, iter(batches), (batch for batch in batches)):
        got = list(copy_overlap.prefetch(given, device))
        assert [type(batch) for batch in got] == [tuple] * 5
        for (X, y), (want_X, want_y) in zip(got, batches, strict=True):
            assert X.device == y.device == torch.device(device)
            assert torch.equal(X.cpu(), want_X)
            assert y.item() == want_y
    assert torch.sim.current_stream(1) == torch.sim.default_stream(1)


def test_the_loop_is_faster_and_no_batch_is_used_before_it_came(gpus):
    batches = [torch.full((128, 512), float(i)).pin_memory() for i in range(5)]
    weight = torch.ones(512, 512, device=gpus[0])

    def run(moved):
        torch.sim.synchronize(0)
        with sim.trace() as trace:
            for batch in moved:
                batch @ weight
        copies = [s for s in trace.spans if s.kind == "copy"]
        products = [s for s in trace.spans if (s.kind, s.name) == ("operation", "mm")]
        assert all(p.start >= c.end for c, p in zip(copies, products, strict=True))
        return trace.seconds, copies, products

    plain, *_ = run(batch.to(gpus[0]) for batch in batches)
    seconds, copies, products = run(copy_overlap.prefetch(batches, gpus[0]))
    assert seconds < 0.8 * plain
    assert all(after.start < product.end for after, product in zip(copies[1:], products))
    assert all(copies[i + 2].start >= products[i].end for i in range(3))  # the memory of a batch is not reused early


def test_prefetch_asks_for_one_batch_ahead_and_no_more(gpus):
    taken = []

    def source():
        for i in range(4):
            taken.append(i)
            yield torch.tensor([i])

    for i, batch in enumerate(copy_overlap.prefetch(source(), gpus[0])):
        assert batch.item() == i
        assert len(taken) == min(i + 2, 4)


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_real_cuda():
    batches = [torch.full((1000, 1000), float(i)).pin_memory() for i in range(4)]
    for i, batch in enumerate(copy_overlap.prefetch(batches, "cuda:0")):
        assert (batch * batch).mean().item() == i * i
    assert set(copy_overlap.measure_overlap("cuda:0")) >= {"blocking", "two streams"}
