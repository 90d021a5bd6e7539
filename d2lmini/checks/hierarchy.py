"""Checks of the exercises on the memory hierarchy: what a chase follows, bytes in flight, the lower of two roofs."""

import math
import random
from collections import Counter

from d2lmini.checks.mechanism import Wrong, attempt, brief, check


@check
def random_cycle(function):
    """``function(n, rng)``: a list of successors that is one cycle through 0 … n - 1, each such cycle as likely."""
    for n in (1, 2, 3, 8, 50):
        for seed in range(20):
            given = f"n = {n}, rng = random.Random({seed})"
            _check_cycle(given, n, _successors(function, n, seed, given))
    turns = 600
    seen = Counter(tuple(_successors(function, 4, seed, "n = 4")) for seed in range(turns))
    if len(seen) < 6:
        raise Wrong(f"n = 4: there are 6 cycles, {turns} generators gave {len(seen)} of them: draw from rng")
    often, seldom = max(seen.values()), min(seen.values())
    if often > 1.5 * turns / 6 or seldom < 0.5 * turns / 6:
        raise Wrong(f"n = 4: of {turns} cycles each of the 6 should come about {turns // 6} times; one came {often} "
                    f"times, another {seldom}")  # fmt: skip
    return "one cycle through all places, and every cycle comes equally often"


def _successors(function, n, seed, given):
    got = attempt(lambda: function(n, random.Random(seed)), given=given)
    try:
        return [int(place) for place in got]
    except (TypeError, ValueError):
        raise Wrong(f"{given}: expected a list of {n} places, got {brief(got)}") from None


def _check_cycle(given, n, successors):
    if sorted(successors) != list(range(n)):
        raise Wrong(f"{given}: expected each place from 0 to {n - 1} once, got {brief(successors)}")
    place, length = successors[0], 1
    while place != 0:
        place, length = successors[place], length + 1
    if length != n:
        raise Wrong(f"{given}: from place 0 the chase is back after {length} of {n} places: {brief(successors)}")


@check
def lines_in_flight(function):
    """``function(bytes_per_s, latency_s, line)``: how many cache lines must be under way to keep the bandwidth up."""
    cases = [(1e9, 1e-9, 64, 1), (20e9, 90e-9, 64, 29), (40e9, 85e-9, 64, 54), (40e9, 85e-9, 128, 27),
             (900e9, 250e-9, 128, 1758), (3.35e12, 600e-9, 128, 15704)]  # fmt: skip
    for bytes_per_s, latency_s, line, want in cases:
        given = f"{bytes_per_s / 1e9:g} GB/s, {latency_s * 1e9:g} ns, lines of {line} bytes"
        got = attempt(function, bytes_per_s, latency_s, line, given=given)
        if isinstance(got, bool) or not isinstance(got, (int, float)) or got != int(got):
            raise Wrong(f"{given}: expected a whole number of lines, got {brief(got)}")
        if got != want:
            raise Wrong(f"{given}: expected {want} lines, got {brief(got)}")
    return "bandwidth × latency, in whole lines"


@check
def attainable_product(function):
    """``function(m, k, n, itemsize, flops_per_s, bytes_per_s)``: the most FLOP/s of a matrix product."""
    for m, k, n in ((1, 1, 1), (64, 64, 64), (4096, 4096, 1), (1, 4096, 512), (512, 64, 4096), (2048, 1024, 256)):
        for itemsize, peak, rate in ((4, 10e12, 900e9), (2, 100e12, 900e9), (8, 5e9, 20e9)):
            given = f"({m}×{k}) @ ({k}×{n}), {itemsize} bytes a number, {peak / 1e9:g} GFLOP/s, {rate / 1e9:g} GB/s"
            flops, nbytes = 2 * m * k * n, itemsize * (m * k + k * n + m * n)
            want = min(peak, flops / nbytes * rate)
            got = attempt(function, m, k, n, itemsize, peak, rate, given=given)
            if isinstance(got, bool) or not isinstance(got, (int, float)):
                raise Wrong(f"{given}: expected a number of FLOP/s, got {brief(got)}")
            if not math.isclose(got, want, rel_tol=1e-9):
                limit = "memory" if want < peak else "arithmetic"
                raise Wrong(f"{given}: expected {want / 1e9:.4g} GFLOP/s ({flops} FLOPs, {nbytes} bytes, {limit} "
                            f"limits), got {got / 1e9:.4g}")  # fmt: skip
    return "FLOPs, bytes and the lower of the two roofs are right"
