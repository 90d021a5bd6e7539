"""Timing: laps against a clock that is set by the test and the simulated one, intervals against their definition."""

import math
from functools import partial

import pytest
import torch

import simgpu
from d2lmini import timing
from d2lmini.timing import Measurement, Timer, compare, human, measure, take_turns


@pytest.fixture
def clock(monkeypatch):
    """A clock that the test moves; synchronising takes a second, as waiting for queued work does."""
    state = {"now": 100.0, "waits": []}

    def wait(*devices):
        state["waits"].append(devices)
        state["now"] += 1.0

    monkeypatch.setattr(timing.time, "perf_counter", lambda: state["now"])
    monkeypatch.setattr(timing, "simulated", lambda devices: False)
    monkeypatch.setattr(timing, "synchronize", wait)
    return state


def test_laps_include_the_work_that_was_still_queued(clock):
    timer = Timer(["cpu"])
    for seconds in (2.0, 3.0):
        timer.start()
        clock["now"] += seconds
        assert timer.stop() == seconds + 1.0  # the wait at the end belongs to the lap, that at the start does not
    assert timer.times == [3.0, 4.0]
    assert (timer.sum(), timer.avg(), timer.cumsum()) == (7.0, 3.5, [3.0, 7.0])
    assert set(clock["waits"]) == {("cpu",)}


def test_a_timer_without_laps_says_so():
    timer = Timer()
    assert (timer.sum(), timer.cumsum()) == (0, [])
    with pytest.raises(RuntimeError, match="no lap was recorded"):
        timer.avg()


def test_measure_warms_up_then_repeats(clock):
    calls = []

    def work():
        calls.append(1)
        clock["now"] += 10 if len(calls) <= 3 else 0.5

    result = measure(work, repeat=7, warmup=3)
    assert len(calls) == 10
    assert result.seconds == (1.5,) * 7
    with pytest.raises(ValueError, match="at least 6 repeats, got 5"):
        measure(work, repeat=5)


def test_functions_take_turns(clock):
    calls, took = [], {"a": 1.0, "b": 5.0}

    def work(name):
        calls.append(name)
        clock["now"] += took[name]

    found = take_turns({name: partial(work, name) for name in took}, repeat=6, warmup=1)
    assert calls == ["a", "b"] * 7
    assert {name: m.seconds for name, m in found.items()} == {"a": (2.0,) * 6, "b": (6.0,) * 6}


@pytest.mark.parametrize("n", [6, 7, 8, 9, 11, 20, 101])
def test_the_interval_is_the_tightest_with_95_percent_coverage(n):
    low, high = Measurement(tuple(range(n))).interval

    def coverage(k):  # of order statistics k and n-1-k, counted from 0
        return sum(math.comb(n, j) for j in range(k + 1, n - k)) / 2**n

    assert high == n - 1 - low
    assert coverage(low) >= 0.95
    assert coverage(low + 1) < 0.95


def test_no_verdict_on_overlapping_intervals():
    a = Measurement(tuple(1.0 + 0.1 * i for i in range(6)))
    b = Measurement(tuple(1.4 + 0.1 * i for i in range(6)))
    assert compare("a", a, "b", b).startswith("no difference was measurable between a")
    c = Measurement(tuple(2.5 + 0.1 * i for i in range(6)))
    assert compare("c", c, "a", a) == "a was 2.20 times as fast as c (1.25 s against 2.75 s)"
    assert compare("a", a, "c", c) == compare("c", c, "a", a)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.001234, "1.23 ms"), (2.0, "2 s"), (1e-3, "1 ms"), (4.56e-6, "4.56 µs"), (7e-9, "7 ns"), (0.0, "0 ns")],
)
def test_human(seconds, text):
    assert human(seconds) == text


def test_provenance_names_machine_software_and_date(monkeypatch):
    for name in timing.SLOWING:
        monkeypatch.delenv(name, raising=False)
    text = timing.provenance(["cpu"])
    assert text.startswith("measured on ")
    assert timing.processor() in text
    assert f"torch {torch.__version__}, {timing.datetime.date.today().isoformat()}" in text
    assert "cuda:1" in timing.provenance(["cuda:1"])
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    assert timing.provenance(["cpu"]).replace(", MKL_CBWR=COMPATIBLE", "") == text


# -- on simulated GPUs: the simulated clock, exactly, and no mixture with the wall clock -------------------------------


@pytest.fixture
def gpus():
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16", shapes_only=True)
    return [torch.device("sim", i) for i in range(2)]


def test_laps_are_simulated_seconds_the_same_every_time(gpus):
    a, timer = torch.ones(1024, 1024, device=gpus[0]), Timer(gpus)
    with simgpu.trace() as trace:
        a @ a
        torch.sim.synchronize()
    for _ in range(3):
        timer.start()
        a @ a
        timer.stop()
    assert timer.times == pytest.approx([trace.seconds] * 3, rel=1e-9)
    assert measure(lambda: a @ a, repeat=6, devices=gpus).median == pytest.approx(trace.seconds)


def test_the_number_says_which_clock_it_is_from(gpus):
    for devices in (gpus, ["cpu", gpus[0]]):
        assert timing.simulated(devices)
        assert timing.provenance(devices) == "simulated on 2 × V100-SXM2-16GB, PCIe3-x16"
    simgpu.enable(2, clock=False)
    for devices in (["cpu"], ["sim:0"]):
        assert not timing.simulated(devices)
        assert timing.provenance(devices).startswith("measured on ")
    with pytest.raises(RuntimeError, match="clock=False"):
        simgpu.now()
    with pytest.raises(ValueError, match="cuda, sim"):
        timing.simulated(["sim:0", "cuda:0"])
