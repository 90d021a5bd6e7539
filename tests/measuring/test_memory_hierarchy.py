"""Latency and bandwidth: what is reported is what a machine with a known clock took, byte for byte, load for load."""

import math
import time

import numpy as np
import pytest
import torch

from d2lmini import devices, host
from d2lmini.host import Cache, MainMemory
from d2lmini.measuring import memory_hierarchy
from d2lmini.measuring.memory_hierarchy import LINE, WORDS, cycle, working_sets
from d2lmini.measuring.operations import Reporting

KIB, MIB = 2**10, 2**20


@pytest.fixture
def machine(monkeypatch):
    """Return a function that makes the machine have these caches, free memory and cores."""

    def pretend(*caches, free=2**40, cores=2):
        monkeypatch.setattr(host, "caches", lambda: tuple(Cache(i + 1, size, 64, 1) for i, size in enumerate(caches)))
        monkeypatch.setattr(host, "main_memory", lambda: MainMemory(2**40, free, False))
        monkeypatch.setattr(host, "usable_cores", lambda: cores)

    return pretend


class Clock:
    """A clock that only moves when a loop runs: `loops` stands for the compiled ones and keeps what they were given."""

    CALL_S = 1e-8  # what it costs to call a loop

    def __init__(self, seconds):
        self.now, self.seconds, self.calls = 0.0, seconds, []

    def read(self):
        return self.now

    def loop(self, name):
        def run(*args):
            self.calls.append((name, args))
            self.now += self.CALL_S + self.seconds(name, args)
            return (int(args[1]) + 8 * args[2]) % len(args[0]) if name == "chase" else None

        return run


@pytest.fixture
def clock(monkeypatch):
    """Return a function that puts such a clock, `seconds(name, args)` a call, in place of time and of the loops."""

    def install(seconds):
        made = Clock(seconds)
        monkeypatch.setattr(time, "perf_counter", made.read)
        monkeypatch.setattr(memory_hierarchy, "compiled", made.loop)
        return made

    return install


@pytest.mark.parametrize(
    ("caches", "free", "largest"),
    [
        ((48 * KIB, MIB, 32 * MIB), 2**40, 256 * MIB),
        ((), 2**40, 256 * MIB),
        ((32 * KIB, 256 * KIB), 2**40, 64 * MIB),
        ((32 * KIB, 480 * MIB), 2**40, 512 * MIB),  # at least, at most
        ((48 * KIB, MIB, 32 * MIB), 512 * MIB, 128 * MIB),  # a quarter of what is free
    ],
)
def test_working_sets_end_in_main_memory(machine, caches, free, largest):
    machine(*caches, free=free)
    sizes = working_sets()
    assert sizes[:7] == [k * KIB for k in (4, 6, 8, 12, 16, 24, 32)]
    assert sizes[-3:] == [largest // 2, largest // 4 * 3, largest]


@pytest.mark.parametrize("lines", [1, 2, 3, 64, 1001])
def test_a_cycle_visits_every_line_once_in_the_order_asked_for(lines):
    visit = np.random.default_rng(lines).permutation(lines)
    order = cycle(visit)
    assert order.nbytes == lines * LINE
    at, seen = visit[0] * WORDS, []
    for _ in range(lines):
        seen.append(at // WORDS)
        at = int(order[at])
    assert seen == visit.tolist()
    assert at == visit[0] * WORDS


@pytest.mark.parametrize("visits", ["at random", "page by page", "in order"])
def test_latency_is_seconds_a_load(clock, machine, visits):
    machine()
    made = clock(lambda name, args: args[2] * 3e-9)
    points = memory_hierarchy.latency([4096, 10_000], visits)
    assert [point.nbytes for point in points] == [4096, 156 * 64]
    for point in points:
        assert point.seconds.median == pytest.approx(3e-9, rel=1e-4)  # the call's own cost is spread over a long lap
    successors = made.calls[0][1][0][::WORDS] // WORDS
    assert (successors[:-1] == np.arange(1, len(successors))).all() == (visits == "in order")
    assert sorted(successors.tolist()) == list(range(64))


@pytest.mark.parametrize(("visits", "least", "most"), [("page by page", 9, 10), ("at random", 400, 581)])
def test_page_by_page_finishes_a_page_before_the_next(clock, machine, visits, least, most):
    machine()
    made = clock(lambda name, args: args[2] * 3e-9)
    lines = 9 * 64 + 5  # the last page is cut
    memory_hierarchy.latency([lines * LINE], visits)
    order, at, pages = made.calls[0][1][0], 0, []
    for _ in range(lines):
        at = int(order[at])
        pages.append(at // WORDS // 64)
    assert least <= np.count_nonzero(np.diff(pages)) <= most


def test_a_chase_goes_on_where_the_last_lap_ended(clock, machine):
    machine()
    made = clock(lambda name, args: args[2] * 3e-9)
    memory_hierarchy.latency([4096])
    for (_, before), (_, after) in zip(made.calls, made.calls[1:]):
        assert int(after[1]) == (int(before[1]) + 8 * before[2]) % len(before[0])


def test_the_time_of_many_chains_is_that_of_one_load(clock, machine):
    machine()
    made = clock(lambda name, args: args[2] * 80e-9)  # the chains of a step overlap completely
    points = memory_hierarchy.latency_of_chains([1, 2, 5], 64 * KIB)
    assert [point.seconds.median for point in points] == pytest.approx([80e-9, 40e-9, 16e-9], rel=1e-4)
    for count in (1, 2, 5):
        places = next(args[1] for _, args in made.calls if len(args[1]) == count)
        assert len(set(places.tolist())) == count
        assert all(place % WORDS == 0 for place in places.tolist())


@pytest.mark.parametrize(("kernel", "arrays"), [("read", 1), ("triad", 3)])
def test_bandwidth_counts_bytes_as_stream_does(clock, machine, kernel, arrays):
    machine()
    made = clock(lambda name, args: args[-1] * arrays * args[0].nbytes / 20e9)
    (point,) = memory_hierarchy.bandwidth([100_000], kernel)
    assert point.bytes_per_s == pytest.approx(20e9, rel=1e-4)
    name, args = made.calls[0]
    used = [arg for arg in args if isinstance(arg, np.ndarray)]
    assert (name, len(used)) == (kernel, arrays)
    assert all(array.dtype == np.float64 and (array == 1).all() for array in used)
    assert point.nbytes == sum(array.nbytes for array in used)
    starts = [array.ctypes.data for array in used]  # each begins with a line, and no two are whole pages apart
    assert all(start % LINE == 0 for start in starts)
    assert np.diff(starts).tolist() == [used[0].nbytes + 3 * LINE] * (arrays - 1)
    assert 0 <= 100_000 - point.nbytes < arrays * LINE


def test_threads_share_the_working_set_and_each_has_arrays_of_its_own(clock, machine):
    machine(cores=4)
    made = clock(lambda name, args: 0.5 * args[-1] * args[0].nbytes / 10e9)  # two at a time
    (point,) = memory_hierarchy.bandwidth([MIB], "read", threads=2)
    assert point.nbytes == MIB
    assert point.bytes_per_s == pytest.approx(20e9, rel=1e-2)
    places = {args[0].ctypes.data for _, args in made.calls}
    assert len(places) == 2


def test_a_lap_is_long_and_an_interruption_does_not_shorten_it(clock):
    made, laps, calls = clock(None), [], []

    def run(count):
        calls.append(count)
        laps.append(count)
        made.now += 1e-6 * count + (1.0 if len(calls) == 1 else 0.0)  # the very first is interrupted for a second

    seconds = memory_hierarchy.repeated(run, 2, repeat=9)
    assert len(seconds.seconds) == 9
    assert seconds.median == pytest.approx(0.5e-6)
    assert set(laps[-9:]) == {512}


def test_stream_is_a_triad_of_the_same_bytes_on_one_core(machine):
    machine()
    seen, used = [], set()

    def note(func, args, keywords, out):
        if "out" in keywords:
            used.add(torch.get_num_threads())
            seen.append((*args, out))

    with devices.threads(3), Reporting(note):
        point = memory_hierarchy.stream(100_000, repeat=6)
        assert torch.get_num_threads() == 3
    assert used == {1}
    assert point.nbytes == 3 * 520 * LINE
    assert 0 < point.bytes_per_s < math.inf
    b, c, a = seen[0]
    assert (a == b + 3 * c).all()
    assert len({array.data_ptr() for array in seen[0]}) == 3


MEASURES = {
    "latency": memory_hierarchy.latency,
    "bandwidth": memory_hierarchy.bandwidth,
    "stream": lambda sizes: memory_hierarchy.stream(*sizes),
    "chains": lambda sizes: memory_hierarchy.latency_of_chains([1], *sizes),
}


@pytest.mark.parametrize("measure", MEASURES.values(), ids=MEASURES)
def test_a_size_of_nothing_and_more_than_is_free_are_refused(measure, machine):
    machine(free=100 * MIB)
    for size in (0, -1, 63):
        with pytest.raises(ValueError, match=f"got {size} bytes"):
            measure([size])
    with pytest.raises(MemoryError, match="1,048,576 MiB"):  # before it is taken
        measure([2**40])


def test_nothing_to_measure_and_no_room_for_a_chases_order_are_refused(machine):
    machine(free=100 * MIB)
    for measure in (memory_hierarchy.latency, memory_hierarchy.bandwidth):
        with pytest.raises(ValueError, match="got none"):
            measure([])
    with pytest.raises(MemoryError, match="needs 120 MiB"):
        memory_hierarchy.latency([80 * MIB])


@pytest.mark.parametrize(
    ("measure", "options", "says"),
    [
        ("latency", {"visits": "backwards"}, "page by page"),
        ("bandwidth", {"kernel": "copy"}, "copy"),
        *(("bandwidth", {"threads": threads}, f"got {threads}") for threads in (0, 2, -1)),
    ],
)
def test_what_is_not_to_be_had_is_named(machine, measure, options, says):
    machine(cores=1)
    with pytest.raises(ValueError, match=says):
        MEASURES[measure]([4096], **options)
