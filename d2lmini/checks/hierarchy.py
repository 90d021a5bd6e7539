"""Checks of the exercises on the memory hierarchy: what a chase follows, bytes in flight, the lower of two roofs."""

import contextlib
import math
import random
from collections import Counter
from functools import partial

from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, brief, check, many, number, reals, typed

# Of a fair choice of one of the 24 cycles through 5 places, chi-squared is above LIMIT once in a million times;
# shuffling by exchanges with any place, which is not fair, comes to about 170.
DRAWS, LIMIT = 20_000, 70


@check
def random_cycle(function):
    """``function(n, rng)``: a list of successors that is one cycle through 0 … n - 1, each such cycle as likely."""
    for n in (1, 2, 3, 8, 50):
        for seed in range(20):
            given = f"n = {n}, rng = random.Random({seed})"
            got = _successors(function, n, random.Random(seed), given)
            _check_cycle(given, n, got)
            if got != _successors(function, n, random.Random(seed), given):
                raise Wrong(f"{given}: a second call gave another cycle: draw all random numbers from rng")
    rng = random.Random(0)
    with contextlib.redirect_stdout(None):  # what the reader's code prints was seen above
        seen = Counter(tuple(_successors(function, 5, rng, "n = 5")) for _ in range(DRAWS))
    if len(seen) < 24:
        raise Wrong(f"n = 5: there are 24 cycles, {DRAWS} calls gave {len(seen)} of them: draw from rng")
    fair = DRAWS / 24
    if sum((count - fair) ** 2 / fair for count in seen.values()) > LIMIT:
        raise Wrong(
            f"n = 5: in {DRAWS} calls each of the 24 cycles should come about {fair:.0f} times, give or take "
            f"{2 * fair**0.5:.0f}; they came {min(seen.values())} to {max(seen.values())} times"
        )
    return "one cycle through all places, and every cycle comes equally often"


def _successors(function, n, rng, given):
    what = f"a list of {many(n, 'place')}"
    return ask(lambda: function(n, rng), given=given, what=what, read=partial(reals, count=n))


def _check_cycle(given, n, successors):
    if sorted(successors) != list(range(n)):
        raise Wrong(f"{given}: expected each place from 0 to {n - 1} once, got {brief(successors)}")
    place, length = successors[0], 1
    while place != 0:
        place, length = successors[int(place)], length + 1
    if length != n:
        raise Wrong(f"{given}: from place 0 the chase is back after {length} of {n} places: {brief(successors)}")


@check
def lines_in_flight(function):
    """``function(bytes_per_s, latency_s, line)``: how many cache lines must be under way to keep the bandwidth up."""
    exact = (2.0**36, 2.0**-23)  # powers of two: nothing is rounded, in whatever order they are multiplied
    cases = [
        (1e9, 1e-9, 64, 1),
        (20e9, 90e-9, 64, 29),
        (40e9, 85e-9, 64, 54),
        (40e9, 85e-9, 128, 27),
        (900e9, 250e-9, 128, 1758),
        (3.35e12, 600e-9, 128, 15704),
        (*exact, 64, 128),
        (*exact, 128, 64),
        (3 * 2.0**30, 2.0**-23, 128, 3),
        (2.0**36 + 2.0**20, 2.0**-23, 128, 65),
    ]
    for bytes_per_s, latency_s, line, want in cases:
        given = f"{bytes_per_s / 1e9:g} GB/s, {latency_s * 1e9:g} ns, lines of {line} bytes"
        answer = attempt(function, bytes_per_s, latency_s, line, given=given)
        if number(answer) is None or number(answer) % 1:
            raise Wrong(f"{given}: expected a whole number of lines, got {typed(answer)}")
        if number(answer) != want:
            raise Wrong(f"{given}: expected {many(want, 'line')}, got {int(number(answer))}")
    return "bandwidth × latency, in whole lines"


@check
def attainable_product(function):
    """``function(m, k, n, itemsize, flops_per_s, bytes_per_s)``: the most FLOP/s of a matrix product."""
    for m, k, n in ((1, 1, 1), (64, 64, 64), (4096, 4096, 1), (1, 4096, 512), (512, 64, 4096), (2048, 1024, 256)):
        for itemsize, peak, rate in ((4, 10e12, 900e9), (2, 100e12, 900e9), (8, 5e9, 20e9)):
            roofs = f"{peak / 1e9:,.0f} GFLOP/s and {rate / 1e9:g} GB/s"
            given = f"({m}×{k}) @ ({k}×{n}), numbers of {itemsize} bytes, {roofs}"
            flops, nbytes = 2 * m * k * n, itemsize * (m * k + k * n + m * n)
            want = min(peak, flops / nbytes * rate)
            got = ask(function, m, k, n, itemsize, peak, rate, given=given, what="a number of FLOP/s")
            if not math.isclose(got, want, rel_tol=1e-6):  # as much as float32 holds
                limit = "memory" if want < peak else "arithmetic"
                told, found = apart(want / 1e9, float(got) / 1e9, ",")
                raise Wrong(
                    f"{given}: expected {told} GFLOP/s ({flops} FLOPs, {nbytes} bytes, {limit} limits), "
                    f"got {found} GFLOP/s"
                )
    return "FLOPs, bytes and the lower of the two roofs are right"
