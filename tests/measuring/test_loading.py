"""Loading: closed formulas against the simulated clock, and a queue against a simulation that goes tick by tick."""

from collections import deque

import hypothesis
import pytest
import torch
from hypothesis import strategies

from d2lmini import sim
from d2lmini.measuring import loading

LOAD, MATRIX = 10e-3, 512


@pytest.fixture
def weight():
    sim.enable(1, gpu="GTX 1080", shapes_only=True)
    return torch.ones(MATRIX, MATRIX, device="sim:0")


def epoch(loader, weight, products=1):
    """Run an epoch with some products a batch; return the trace and the batches."""
    torch.sim.synchronize()
    seen = []
    with sim.trace() as trace:
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


def test_without_workers_every_batch_is_waited_for(weight):
    trace, _ = epoch(loading.SimulatedLoader(range(10), LOAD), weight)
    work = [span for span in trace.spans if span.kind == "work"]
    assert [span.end - span.start for span in work] == [round(LOAD * 1e12)] * 10
    assert trace.seconds == pytest.approx(10 * LOAD, rel=0.02)


@pytest.mark.parametrize("workers", [1, 2, 4])
def test_workers_share_the_loading(weight, workers):
    trace, _ = epoch(loading.SimulatedLoader(range(24), LOAD, workers), weight)
    assert trace.seconds == pytest.approx(24 * LOAD / workers, rel=0.03)
    rows = {span.row for span in trace.spans if span.kind == "work"}
    assert rows == set(range(1, workers + 1))


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
    with sim.trace() as trace:
        batches = iter(loading.SimulatedLoader(range(20), LOAD, workers=2, prefetch=3))
        next(batches)
    assert sum(span.kind == "work" for span in trace.spans) == 2 * 3 + 1


def test_a_slow_program_finds_the_batches_ready(weight):
    loader = loading.SimulatedLoader(range(6), LOAD, workers=1, prefetch=2)
    torch.sim.synchronize()
    waits = []
    with sim.trace() as trace:
        for _ in loader:
            waits.append(sum(span.kind == "wait" for span in trace.spans))
            sim.clock().advance(10 * LOAD)
    assert waits == [1] * 6  # only for the first


@pytest.mark.parametrize(("load", "step", "workers", "share"), [
    (4, 1, 1, 0.25), (4, 1, 3, 0.75), (4, 1, 4, 1), (4, 1, 9, 1), (1, 4, 1, 1), (0, 1, 1, 1),
])  # fmt: skip
def test_utilisation(load, step, workers, share):
    assert loading.utilisation(load, step, workers) == share
    assert (loading.workers_needed(load, step) <= workers) == (share == 1)


def ticks(loads, steps, capacity):
    """Run a loader and a device against a real queue, one unit of time after the other; return when each step ends."""
    queue, ends = deque(), []
    to_load, to_train = deque(enumerate(loads)), None
    making, held, left = None, None, 0
    now = 0
    while len(ends) < len(loads):
        if to_train is not None and left == 0:
            ends.append(now)
            to_train = None
        moved = True
        while moved:  # what can happen in no time happens before the next tick
            moved = False
            if making is None and held is None and to_load:
                making = list(to_load.popleft())
                moved = True
            if making is not None and making[1] == 0:
                held, making, moved = making[0], None, True
            if held is not None and len(queue) < capacity:
                queue.append(held)
                held, moved = None, True
            if to_train is None and queue:
                to_train = queue.popleft()
                left, moved = steps[to_train], True
        now += 1
        if making is not None:
            making[1] -= 1
        if to_train is not None:
            left -= 1
    return ends


@hypothesis.given(
    strategies.lists(strategies.tuples(strategies.integers(1, 9), strategies.integers(1, 9)), max_size=12),
    strategies.integers(1, 4),
)
@hypothesis.settings(max_examples=200, deadline=None)
def test_finish_times_are_those_of_a_real_queue(pairs, capacity):
    loads, steps = [a for a, _ in pairs], [b for _, b in pairs]
    assert loading.finish_times(loads, steps, capacity) == ticks(loads, steps, capacity)


@pytest.mark.parametrize(("load", "step"), [(3, 1), (1, 3), (2, 2)])
def test_in_the_long_run_the_slower_stage_sets_the_pace(load, step):
    ends = loading.finish_times([load] * 100, [step] * 100, capacity=1)
    assert ends[-1] - ends[-2] == max(load, step)


def test_refusals():
    for wrong in (([1], [1, 2], 1), ([1], [1], 0)):
        with pytest.raises(ValueError, match="capacity"):
            loading.finish_times(*wrong)
    sim.enable(1, clock=False)
    with pytest.raises(RuntimeError, match="clock"):
        iter(loading.SimulatedLoader([1], LOAD))
    sim.enable(1)


def test_waiting_examples_are_numbers_and_take_their_time():
    data = loading.Waiting(3, 0.0)
    assert len(data) == 3
    assert [float(data[i]) for i in range(3)] == [0, 1, 2]
