"""Copies underneath computation: a prefetched batch waits for its copy, and its copy for no work but its own."""

import pytest
import torch

import simgpu
from d2lmini.measuring import copy_overlap


@pytest.fixture
def gpus():
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16")
    return [torch.device("sim", i) for i in range(2)]


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
        with simgpu.trace() as trace:
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
