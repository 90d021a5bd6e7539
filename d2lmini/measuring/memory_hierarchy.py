"""The memory hierarchy of this machine, measured: latency and bandwidth against the size of the working set.

Every array is written before it is measured: fresh zeros all lie in one page, however many they are. NumPy asks Linux
for large pages for big arrays, so that translating addresses costs little.
"""

import time
import timeit
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch

from d2lmini import devices, host
from d2lmini.measuring.memory_loops import ARRAYS, compiled
from d2lmini.timing import Measurement, measure
from simgpu.hardware.arguments import find

LINE = 64  # bytes a cache line on x86 and most ARM processors; Apple's have 128, and a chase then visits half lines
WORDS = LINE // 8  # of 8 bytes, in a line
PAGE = 4096
# The shortest time that is measured at once. Calling a compiled loop costs a thousandth of it, and most laps end before
# the system gives the core to another program, which it does every few milliseconds where several share it.
LAP_S = 5e-4
ROOM = 4  # main memory is what a working set of this many times the largest cache is in


@dataclass(frozen=True)
class Point:
    """What was measured for one working set: its `nbytes`, and the `seconds` that one load, or one byte, took."""

    nbytes: int
    seconds: Measurement

    @property
    def bytes_per_s(self):
        """The median bandwidth, where `seconds` is for one byte."""
        return 1 / self.seconds.median


def working_sets():
    """Return sizes in bytes, two an octave, from 4 KiB to twice ROOM times the largest cache.

    Where no cache is known that end is 256 MiB, and it is never over 512 MiB or a quarter of the memory that is free.
    """
    largest = max([cache.nbytes for cache in host.caches()], default=2**25)
    most = min(max(2 * ROOM * largest, 2**26), 2**29, host.main_memory().free // 4)
    return [size for k in range(12, 30) for size in (2**k, 3 * 2 ** (k - 1)) if size <= most]


def cycle(visit):
    """Return what `chase` follows to visit cache lines as `visit` lists them.

    The first word of a line is the place of the next line's first word.
    """
    order = np.zeros((visit.max() + 1) * WORDS, dtype=np.uint64)
    order[visit * WORDS] = np.roll(visit, -1) * WORDS
    return order


def latency(sizes=None, visits="at random"):
    """Measure how long one dependent load takes, by working set, on one core.

    Args:
        sizes: Bytes of the working sets; by default `working_sets`.
        visits: The order in which cache lines are visited: "at random"; "page by page": at random, but a page is
            finished before the next, so that one address translation serves all of its lines; "in order", which the
            processor's prefetcher foresees.

    Returns:
        A `Point` for each working set; its seconds are those from one load to the next.

    Raises:
        ValueError: Another order, or a size of less than two lines.
        MemoryError: More than is free.
        RuntimeError: Numba is missing.
    """
    order, chase, points = find(VISITS, visits, "order of visits"), compiled("chase"), []
    for nbytes in _checked(sizes, 2 * LINE, overhead=0.5):
        lines = nbytes // LINE
        run = _follower(chase, cycle(order(lines)))
        run(min(lines, 2**19))  # once around, so that the cache holds what it can
        points.append(Point(lines * LINE, repeated(run)))
    return points


def latency_of_chains(chains, nbytes):
    """Measure how long a load takes when several chains of dependent loads are followed at once, on one core.

    Chains do not wait for each other, so that a core has several loads under way.

    Args:
        chains: The numbers of chains to try.
        nbytes: The working set, shared by all chains.

    Returns:
        A `Point` for each number of chains; its seconds are those of one load.

    Raises:
        ValueError, MemoryError, RuntimeError: As `latency`.
    """
    (nbytes,) = _checked([nbytes], 2 * LINE * max(chains), overhead=0.5)
    loop, points, visit = compiled("chase_many"), [], _shuffled(nbytes // LINE)
    order = cycle(visit)
    for count in chains:
        places = (visit[:: len(visit) // count][:count] * WORDS).astype(np.uint64)
        points.append(Point(nbytes, repeated(lambda steps, places=places: loop(order, places, steps), count)))
    return points


def bandwidth(sizes=None, kernel="triad", threads=1, repeat=11):
    """Measure how long a byte takes, by working set, as STREAM counts bytes.

    Args:
        sizes: Bytes of the working sets, all arrays together; by default `working_sets`.
        kernel: "read", one array; or "triad", two arrays read and one written. STREAM counts 3 elements for a step of
            triad; a cache that fetches a line before it is overwritten moves 4.
        threads: Cores at work, each on arrays of its own.
        repeat: How many times each is measured.

    Returns:
        A `Point` for each working set; its seconds are those of one byte.

    Raises:
        ValueError: Another kernel, a number of threads that cannot be had, or a size of less than a line an array.
        MemoryError: More than is free.
        RuntimeError: Numba is missing.
    """
    share = threads * find(ARRAYS, kernel, "kernel") * LINE
    if not 1 <= threads <= host.usable_cores():
        raise ValueError(f"expected 1 to {host.usable_cores()} threads, the cores this process may use, got {threads}")
    loop, points = compiled(kernel), []
    with ThreadPoolExecutor(threads) as pool:
        for nbytes in _checked(sizes, share):
            parts = [_arguments(kernel, nbytes // share * LINE) for _ in range(threads)]

            def run(passes, parts=parts):
                if threads == 1:
                    return loop(*parts[0], passes)
                return list(pool.map(lambda part: loop(*part, passes), parts))

            used = nbytes // share * share
            points.append(Point(used, repeated(run, used, repeat)))
    return points


def stream(nbytes, repeat=11):
    """Measure STREAM's triad by PyTorch's own loop for a = b + scale × c, compiled from C++, on one core.

    Bytes and working set are counted as `bandwidth` does, so that the two should agree.

    Args:
        nbytes: The working set, all arrays together.
        repeat: How many times it is measured.

    Returns:
        A `Point`; its seconds are those of one byte.

    Raises:
        ValueError: A size of less than a line an array.
        MemoryError: More than is free.
    """
    (nbytes,) = _checked([nbytes], 3 * LINE)
    a, b, c = (torch.from_numpy(array) for array in _arrays(3, nbytes // (3 * LINE) * LINE))
    with devices.threads(1):
        return Point(3 * a.nbytes, repeated_calls(lambda: torch.add(b, c, alpha=3.0, out=a), repeat, 3 * a.nbytes))


def repeated(run, units=1, repeat=11):
    """Measure a loop, with as many rounds as make a lap long enough.

    The count doubles until a lap is long enough; the shorter of two tries counts, since an interruption lengthens one.

    Args:
        run: ``run(count)`` does `count` times `units`.
        units: How many of what is measured one round does.
        repeat: How many laps are measured.

    Returns:
        The `Measurement` of one unit's seconds.
    """
    count = 1
    while min(timeit.repeat(partial(run, count), timer=time.perf_counter, number=1, repeat=2)) < LAP_S:
        count *= 2
    laps = measure(partial(run, count), repeat, warmup=0, devices=["cpu"])
    return Measurement(tuple(seconds / (count * units) for seconds in laps.seconds))


def repeated_calls(function, repeat=11, units=1):
    """Measure calls of a function, as `repeated` does.

    Args:
        function: ``function()`` does `units`.
        repeat: How many laps are measured.
        units: How many of what is measured one call does.
    """

    def run(count):
        for _ in range(count):
            function()

    return repeated(run, units, repeat)


def _checked(sizes, least, overhead=0.0):
    """Return the sizes, all at least `least` bytes and together with their overhead not more than is free."""
    sizes = working_sets() if sizes is None else list(sizes)
    if not sizes or min(sizes) < least:
        got = f"{min(sizes)} bytes" if sizes else "none"
        raise ValueError(f"expected working sets of at least {least} bytes, got {got}")
    host.require_memory(int(max(sizes) * (1 + overhead)), f"a working set of {max(sizes) / 2**20:,.0f} MiB")
    return sizes


def _follower(chase, order):
    """Return a function that chases for a number of steps, on from where it last ended.

    From the start again, it would visit the few lines that it has just brought into the cache.
    """
    at = np.uint64(0)

    def run(steps):
        nonlocal at
        at = np.uint64(chase(order, at, steps))

    return run


def _shuffled(lines):
    """Return the lines in random order. `cycle` makes one cycle of any order, and of a random one each as likely.

    Following a random permutation itself would not do: it falls apart into cycles, and a chase stays in one of them.
    """
    return np.random.default_rng(0).permutation(lines)


def _page_by_page(lines):
    """Return the lines with those of a page one after the other, in random order, and the pages in random order too."""
    rng, page = np.random.default_rng(0), np.arange(lines) * LINE // PAGE
    return np.argsort(rng.permutation(page[-1] + 1)[page] + rng.random(lines))


VISITS = {"at random": _shuffled, "page by page": _page_by_page, "in order": np.arange}


def _arrays(count, nbytes):
    """Return `count` arrays of ones, float64, in one block, each beginning with a line.

    They lie three lines apart, or equal places of two arrays could differ by whole pages; some processors take a load
    for one from the other, and stall.
    """
    gap = 3 * LINE
    block = np.empty(count * (nbytes + gap) + PAGE, dtype=np.uint8)
    start = -block.ctypes.data % PAGE
    starts = [start + k * (nbytes + gap) for k in range(count)]
    arrays = [block[start : start + nbytes].view(np.float64) for start in starts]
    for array in arrays:
        array.fill(1)
    return arrays


def _arguments(kernel, nbytes):
    arrays = _arrays(ARRAYS[kernel], nbytes)
    return tuple(arrays) if kernel == "read" else (*arrays, 0.5)
