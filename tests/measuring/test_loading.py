"""Loading: closed formulas against the simulated clock."""

import pytest
import torch

import simgpu
from d2lmini.measuring import loading

LOAD, MATRIX = 10e-3, 512


@pytest.fixture
def weight():
    simgpu.enable(1, gpu="GTX 1080", shapes_only=True)
    return torch.ones(MATRIX, MATRIX, device="sim:0")


def epoch(loader, weight, products=1):
    """Run an epoch with some products a batch; return the trace and the batches."""
    torch.sim.synchronize()
    seen = []
    with simgpu.trace() as trace:
        for batch in loader:
            seen.append(batch)
            for _ in range(products):
                out = weight @ weight
        del out
        torch.sim.synchronize()
    return trace, seen


@pytest.mark.parametrize("workers", [0, 1, 2, 3, 5])
@pytest.mark.parametrize("count", [1, 2, 7])
def test_batches_come_in_order_and_all(weight, workers, count):
    loader = loading.SimulatedLoader(range(count), LOAD, workers)
    assert len(loader) == count
    assert epoch(loader, weight)[1] == list(range(count))


@pytest.mark.parametrize("workers", [0, 1, 2, 4])
def test_workers_share_the_loading_and_without_them_every_batch_is_waited_for(weight, workers):
    trace, _ = epoch(loading.SimulatedLoader(range(24), LOAD, workers), weight)
    assert trace.seconds == pytest.approx(24 * LOAD / max(1, workers), rel=0.03)
    work = [span for span in trace.spans if span.kind == "work"]
    assert [span.end - span.start for span in work] == [round(LOAD * 1e12)] * 24
    assert {span.row for span in work} == (set(range(1, workers + 1)) or {0})


def test_enough_workers_keep_the_device_busy_and_fewer_do_not(weight):
    trace, _ = epoch(loading.SimulatedLoader(range(3), 0), weight, 5)
    step = trace.busy_seconds()["gpu0"] / 3
    load = 2.5 * step
    assert loading.workers_needed(load, step) == 3
    for workers in (1, 2, 3, 4):
        trace, _ = epoch(loading.SimulatedLoader(range(20), load, workers), weight, 5)
        busy = trace.busy_seconds()["gpu0"] / trace.seconds
        assert busy == pytest.approx(loading.utilisation(load, step, workers), rel=0.15)


def test_no_more_batches_are_ordered_ahead_than_asked_for(weight):
    torch.sim.synchronize()
    with simgpu.trace() as trace:
        batches = iter(loading.SimulatedLoader(range(20), LOAD, workers=2, prefetch=3))
        next(batches)
    assert sum(span.kind == "work" for span in trace.spans) == 2 * 3 + 1


def test_a_slow_program_finds_the_batches_ready(weight):
    loader = loading.SimulatedLoader(range(6), LOAD, workers=1, prefetch=2)
    torch.sim.synchronize()
    waits = []
    with simgpu.trace() as trace:
        for _ in loader:
            waits.append(sum(span.kind == "wait" for span in trace.spans))
            simgpu.clock().advance(10 * LOAD)
    assert waits == [1] * 6  # only for the first


@pytest.mark.parametrize(
    ("load", "step", "workers", "share"),
    [
        (4, 1, 1, 0.25),
        (4, 1, 3, 0.75),
        (4, 1, 4, 1),
        (4, 1, 9, 1),
        (1, 4, 1, 1),
        (0, 1, 1, 1),
    ],
)
def test_utilisation(load, step, workers, share):
    assert loading.utilisation(load, step, workers) == share
    assert (loading.workers_needed(load, step) <= workers) == (share == 1)


def test_without_a_clock_nothing_is_loaded():
    simgpu.enable(1, clock=False)
    with pytest.raises(RuntimeError, match="clock"):
        iter(loading.SimulatedLoader([1], LOAD))
    simgpu.enable(1)
