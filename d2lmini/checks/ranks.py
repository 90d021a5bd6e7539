"""Checks of the exercises on processes: who reads what, and what is hidden."""

import math
import random
from collections import Counter
from itertools import chain, pairwise

import numpy as np
import torch

from d2lmini.checks.mechanism import Wrong, ask, attempt, brief, check, expected, many, number, reals


@check
def sampler_indices(function):
    """``function(n, rank, world_size, epoch)``: a rank's examples in an epoch; all ranks get equally many."""
    for n, size in ((10, 4), (12, 3), (7, 2), (5, 1), (3, 4), (40, 8)):
        for epoch in (0, 1):
            _cover(n, size, epoch, [_indices(function, n, rank, size, epoch) for rank in range(size)])
    given = "40 examples on 2 ranks"
    orders = [
        [place for rank in range(2) for place in _indices(function, 40, rank, 2, epoch, again)]
        for again, epoch in enumerate((0, 1, 5, 1))
    ]
    if orders[1] != orders[3]:
        raise Wrong(f"{given}: epoch 1, asked twice, gave two orders: it must depend on nothing but the epoch")
    if any(map(_alike, orders, orders[1:])) or any(map(_regular, orders)):
        raise Wrong(f"{given}: epochs 0, 1 and 5 should each have an order of their own, shuffled")
    for what, some in (
        ("rank 0 reads the same 20 examples", range(20)),
        ("the same 20 examples come first", [*range(10), *range(20, 30)]),
    ):
        if len({frozenset(order[i] for i in some) for order in orders[:2]}) == 1:
            raise Wrong(f"{given}: {what} in epochs 0 and 1: shuffle all, then deal them out")
    before = _random_states()
    attempt(function, 40, 0, 2, 2, given=given)
    if _random_states() != before:
        raise Wrong(f"{given}: your code drew from the rank's own random numbers, or seeded them; make a generator")
    return "in each epoch every example is read, in a new order, and all ranks have equally many"


def _random_states():
    return torch.get_rng_state().tolist(), random.getstate(), repr(np.random.get_state())


def _alike(one, other):
    """Say whether most neighbours are neighbours again: one order, begun at another example or read backwards."""
    same = set(map(frozenset, pairwise(one))) & set(map(frozenset, pairwise(other)))
    return 2 * len(same) > len(one)


def _regular(order):
    """Say whether most places go on by the same number, as where the examples are only begun at another one."""
    gaps = Counter((b - a) % len(order) for a, b in pairwise(order))
    return 2 * max(gaps.values()) > len(order)


def _indices(function, n, rank, size, epoch, again=0):
    """Ask as that rank would: its random numbers are not those of the others, nor those of its last answer."""
    given = f"{many(n, 'example')}, rank {rank} of {size}, epoch {epoch}"
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(1000 * again + rank)
        found = ask(function, n, rank, size, epoch, given=given, what="a list of numbers of examples", read=reals)
    strange = [place for place in found if place not in range(n)]
    if strange:
        raise Wrong(f"{given}: there is no example {brief(strange[0])}, they are numbered from 0 to {n - 1}")
    return [int(place) for place in found]


def _cover(n, size, epoch, ranks):
    given, each = f"{many(n, 'example')} on {many(size, 'rank')}, epoch {epoch}", math.ceil(n / size)
    for rank, places in enumerate(ranks):
        if len(places) != each:
            raise Wrong(f"{given}: rank {rank} got {many(len(places), 'example')}; expected {each} on every rank")
    everything = list(chain(*ranks))
    left_out = sorted(set(range(n)) - set(everything))
    if left_out:
        raise Wrong(
            f"{given}: no rank reads example {left_out[0]} (do all ranks agree on one order? The random "
            "numbers that each draws by itself differ)"
        )
    often = max(everything.count(place) for place in everything)
    if often > math.ceil(size * each / n):
        raise Wrong(f"{given}: an example is read {often} times; repeat one only to fill up the last places")


@check
def exposed_seconds(function):
    """``function(ready, takes)``: seconds from the end of backward to the end of the last bucket's message."""
    for ready, takes in (
        ([1, 2, 3], [2, 0.5, 0.25]),
        ([1, 2, 3], [0.5, 0.5, 0.5]),
        ([1, 2, 3, 4], [3, 3, 0.5, 0.5]),
        ([0.5], [5]),
        ([], []),
        ([1, 4], [1, 0.125]),
        ([1, 1, 1], [1, 2, 3]),
        ([1, 8, 9], [4, 3, 3]),
        ([4, 5, 6, 7], [0.5, 0, 0, 0]),
    ):
        given = f"ready {brief(ready)}, takes {brief(takes)}"
        answer = attempt(function, list(ready), list(takes), given=given)
        got, want = number(answer), _exposed(ready, takes)
        if got is None or not math.isclose(got, want, abs_tol=1e-9):
            raise Wrong(f"{given}: {expected(want, answer)}{_hint(got, ready, takes)}")
    return "messages follow one another, none starts before its bucket is ready, and what outlasts backward is exposed"


def _exposed(ready, takes):
    free = 0.0
    for moment, seconds in zip(ready, takes):
        free = max(free, moment) + seconds
    return max(0.0, free - ready[-1]) if ready else 0.0


def _hint(got, ready, takes):
    if got is not None and ready and math.isclose(got, _exposed(ready, takes) + ready[-1]):
        return " (this is the moment at which the last message ends; backward ends when the last bucket is ready)"
    if got is not None and takes and math.isclose(got, takes[-1]):
        return " (the last message may have to wait for those before it)"
    return ""


@check
def hiding_batch(function):
    """``function(flops_per_s, bytes_per_s, gpus, gradient_bytes)``: examples on each GPU that just hide gradients."""
    for flops, rate, gpus, size in (
        (4e12, 1e9, 4, 2),
        (1e12, 1e9, 2, 2),
        (1e15, 4e11, 8, 2),
        (1.2e13, 1e10, 8, 4),
        (1e12, 5e11, 4, 2),
        (1e12, 1e9, 1, 4),
        (7e13, 3e10, 64, 4),
        (2.0**40, 2.0**30, 2, 2),
        (2.0**32, 2.0**30, 4, 2),
        (3e14, 1e11, 3, 1),
        (1e13, 7e10, 4, 2),
    ):
        given = f"F = {flops:g} FLOP/s, W = {rate:g} B/s, {many(gpus, 'GPU')}, {size} bytes for each gradient"
        answer = attempt(function, flops, rate, gpus, size, given=given)
        exact = (gpus - 1) / gpus * size * flops / (2 * rate)
        # Where the quotient is whole, rounding errors may add one. Powers of two are divided without any.
        got, slack = number(answer), 0 if rate == 2**30 else 1e-9 * exact
        if got is None or got % 1 or not got - 1 - slack < exact <= got + slack:
            raise Wrong(f"{given}: {expected(math.ceil(exact - slack), answer)}{_slip(got, exact)}")
    return "the least whole number of examples whose backward pass is as long as the all-reduce"


def _slip(got, exact):
    if got is None or exact == 0:
        return ""
    if got == math.floor(exact) or math.isclose(got, exact):
        return " (not a whole number that is large enough: round up)"
    for factor, why in (
        (2, "backward has 4 operations for each weight and example, not 2"),
        (2 / 3, "the forward pass hides nothing: gradients come in backward"),
        (0.5, "the ring sends nearly twice the gradients"),
    ):
        if math.isclose(got, math.ceil(factor * exact), rel_tol=1e-3):
            return f" ({why})"
    return ""
