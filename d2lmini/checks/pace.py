"""Checks of the exercises on throughput: a batch that pays, workers, the serial share, a queue between two stages."""

import math
from functools import partial

from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, check, must_be, number, pair, reals, typed
from d2lmini.measuring.loading import utilisation, workers_needed
from d2lmini.measuring.throughput import amdahl
from d2lmini.timing import human

# µs. A line through two neighbours, the ends, or an end and the middle, or fitted to the first or last three points,
# misses by more than the 5 % that are allowed; a fit of all points, plain, relative or by medians, by less than 2 %.
NOISE = (10, -9, 9, -8, 1, 8, -6, 3, -7, 0, 9)


@check
def batch_for(function):
    """``function(batches, seconds, share)``: the smallest batch with this share of the throughput's limit."""
    batches = [2**k for k in range(11)]
    for t0, t1 in ((1e-4, 7e-6), (5e-4, 3.1e-4), (2e-3, 1.3e-6)):
        for share in (0.5, 0.8, 0.9, 0.05):
            exact = [t0 + b * t1 for b in batches]
            want = math.ceil(share / (1 - share) * t0 / t1)
            given = f"t0 = {human(t0)}, t1 = {human(t1)}, share {share}"
            _near(given, attempt(function, batches, exact, share, given=given), want, 0)
    noisy = [1e-4 + b * 7e-6 + e * 1e-6 for b, e in zip(batches, NOISE)]
    given = "t0 = 100 µs, t1 = 7 µs, each time up to 10 µs too long or too short, share 0.9"
    _near(given, attempt(function, batches, noisy, 0.9, given=given), 129, 0.05)
    return "the right batch for any line and any share, also where it is none of those that were measured"


def _near(given, got, want, tolerance):
    batch, about = number(got), " or so" if tolerance else ""
    if batch is None or batch != round(batch):  # a float such as np.ceil's is a whole number too
        raise Wrong(f"{given}: expected a batch of {want}{about}, a whole number, got {typed(got)}")
    if abs(batch - want) > tolerance * want:
        raise Wrong(f"{given}: expected a batch of {want}{about}, got {batch}")


@check
def worker_plan(function):
    """``function(load, step, cores)``: the fewest workers for the best utilisation, at most `cores`, and that."""
    for load, step, cores in (
        (624, 171, 16),
        (600, 200, 8),
        (601, 200, 8),
        (50, 200, 8),
        (900, 100, 4),
        (200, 200, 1),
        (1000, 3, 64),
        (7, 2, 2),
        (199, 100, 2),
    ):
        given = f"load {load} µs, step {step} µs, {cores} cores"
        workers = min(workers_needed(load, step), cores)
        want = (workers, utilisation(load, step, workers))
        got = ask(function, load, step, cores, given=given, what="a pair of numbers (workers, utilisation)", read=pair)
        if got[0] != want[0]:
            told, found = apart(want[0], got[0])
            raise Wrong(f"{given}: expected {told} worker{'s' * (workers > 1)}, got {found}")
        if not math.isclose(got[1], want[1], rel_tol=1e-6):
            told, found = apart(want[1], got[1])
            raise Wrong(f"{given}: {workers} workers keep the device busy for {told} of the time, you say {found}")
    return "as many workers as help and no more, and the share of the time that the device is busy with them"


@check
def serial_share(function):
    """``function(threads, seconds)``: the share of the work that stays serial, also without a time for 1 thread."""
    for threads in ([1, 2, 4, 8, 16], [1, 2, 3], [2, 4, 8], [3, 5, 6, 12]):
        for serial in (0.0, 0.03, 0.4, 1.0):
            given = f"threads {threads}, made with a serial share of {serial}"
            exact = [7.5 / amdahl(serial, p) for p in threads]
            _try_share(function, given, threads, exact, serial, 1e-5)  # float32 is right too
    threads = [2, 3, 4, 5, 6, 8, 10, 12, 14, 16]
    noisy = [2 / amdahl(0.2, p) * (1 + sign / 10) for p, sign in zip(threads, (-1, 1, 1, -1, -1, 1, -1, -1, -1, 1))]
    given = f"threads {threads}, serial share 0.2, each time a tenth too long or too short"
    _try_share(function, given, threads, noisy, 0.2, 0.04)  # the outer two alone miss by 0.08, fits of all by 0.01
    return "found again in exact times, whether or not one thread was measured, and nearly so in noisy ones"


def _try_share(function, given, threads, seconds, serial, tolerance):
    share = ask(function, threads, seconds, given=given, what=f"the number {serial}")
    if not abs(share - serial) <= tolerance:
        told, found = apart(serial, share, first=".7g")
        raise Wrong(f"{given}: expected {told}, got {found}")


@check
def bounded_queue(function):
    """``function(loads, steps, capacity)``: when each step ends, with a queue of `capacity` batches in between."""
    for loads, steps, capacity in (
        ([2, 2, 2], [1, 1, 1], 1),
        ([1, 1, 1, 1], [3, 3, 3, 3], 1),
        ([5], [4], 2),
        ([], [], 1),
        ([1, 1, 1, 9, 1], [4, 4, 4, 4, 4], 2),
        ([1, 1, 1, 9, 1], [4, 4, 4, 4, 4], 1),
        ([1] * 6 + [20], [3] * 7, 3),
        ([3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1], 2),
    ):
        given = f"loads {loads}, steps {steps}, capacity {capacity}"
        want, read = finish_times(loads, steps, capacity), partial(reals, count=len(loads))
        times = ask(function, loads, steps, capacity, given=given, what=f"a list of {len(want)} times", read=read)
        for i, (a, b) in enumerate(zip(want, times)):
            if a != b:
                told, found = apart(a, b)
                raise Wrong(f"{given}: step {i} ends at {told}, you say {found}")
    return "every step ends when it should, whether the loader waits for room or the device for a batch"


def finish_times(loads, steps, capacity):
    """Return when each step ends, of a loader and a device with a queue between them.

    Args:
        loads: Seconds that the loader takes for each batch.
        steps: Seconds that the device takes for each.
        capacity: Batches that the queue holds.
    """
    taken, ends, queued = [], [], 0
    for i, (load, step) in enumerate(zip(loads, steps)):
        room = taken[i - capacity] if i >= capacity else 0  # a loader that finds the queue full waits
        queued = max(queued + load, room)
        taken.append(max(queued, ends[-1] if ends else 0))
        ends.append(taken[-1] + step)
    return ends


@check
def two_buffers(function):
    """``function(copies, works)``: when the last work ends, if copies go to two buffers by turns, beside the work."""
    for copies, works in (
        ([3], [5]),
        ([2, 2], [5, 5]),
        ([4, 4, 4], [1, 1, 1]),
        ([1, 1, 1, 9], [6, 1, 1, 1]),  # the third copy waits for the first work
        ([5, 1, 1, 1], [1, 8, 1, 4]),
        ([3, 1, 4, 1, 5, 9, 2], [2, 7, 1, 8, 2, 8, 1]),
    ):
        ends = []  # of each work
        copied = 0
        for i, (copy, work) in enumerate(zip(copies, works)):
            copied = max(copied, ends[i - 2] if i >= 2 else 0) + copy
            ends.append(max(copied, ends[-1] if ends else 0) + work)
        given = f"copies {copies}, works {works}"
        got = ask(function, copies, works, given=given, what="a time")
        slips = {"nothing overlaps": sum(copies) + sum(works)}
        must_be(ends[-1], got, given=given, slips=slips)
    return "the last work ends when it should, whether a copy waits for its buffer or the work for a copy"
