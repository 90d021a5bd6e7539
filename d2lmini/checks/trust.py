"""Checks of the exercises on trust: the host at both ends, a ring's constants, verdicts."""

import math
import random

from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, brief, check, listed, number, pair, scored, typed


def _same_numbers(given, got, want, names):
    values = listed(got)
    if values is None or len(values) != len(want):
        raise Wrong(f"{given}: expected {len(want)} values {names}, got {typed(got)}")
    for value, expected in zip(values, want):
        plain = number(value)
        near = plain is not None and expected is not None and math.isclose(plain, expected, rel_tol=1e-4)
        if not near and not value is expected is None:
            raise Wrong(f"{given}: expected {brief(list(want))}, got {brief(values)}")


@check
def rate_ends(function):
    """``function(batch, operations, gpu, low, high)``: the least and the most examples a second."""
    for batch, operations, gpu, low, high in (
        (1, 174, 1e-3, 10e-6, 59e-6),
        (256, 174, 0.23, 10e-6, 59e-6),
        (8, 200, 6e-3, 10e-6, 59e-6),
        (4, 1000, 10.5e-3, 10e-6, 11e-6),
    ):
        given = f"batch {batch}, {operations} operations, {gpu * 1e3:g} ms of GPU, {low * 1e6:g} to {high * 1e6:g} µs"
        want = [batch / max(gpu, operations * cost) for cost in (high, low)]
        got = attempt(function, batch, operations, gpu, low, high, given=given)
        _same_numbers(given, got, want, "(least, most)")
    return "a range where the host decides, one number where the GPU does, and both where each decides at one end"


NOISE = (0.1, *[-0.02] * 5, 0.02, -0.02, 0.02, 0.02, *[0.04, 0.02] * 2, -0.1)  # the outer two alone miss by a tenth


@check
def ring_constants(function):
    """``function(ranks, sizes, seconds)``: (α in seconds, β in bytes a second) of a ring's all-reduces."""
    sizes = [2**k for k in range(12, 27)]
    for ranks, alpha, beta in ((2, 5e-6, 20e9), (8, 14e-6, 12.5e9), (16, 30e-6, 50e9)):
        exact = [_ring(ranks, alpha, beta, size) for size in sizes]
        _near(function, ranks, sizes, exact, (alpha, beta), 1e-4, "")
        noisy = [seconds * (1 + off) for seconds, off in zip(exact, NOISE)]
        _near(function, ranks, sizes, noisy, (alpha, beta), 0.07, ", each time up to a tenth too long or too short")
    return "found again for few ranks and many, and nearly so from times that are not exact"


def _ring(ranks, alpha, beta, nbytes):
    return 2 * (ranks - 1) * (alpha + nbytes / ranks / beta)


def _near(function, ranks, sizes, seconds, want, tolerance, noise):
    given = f"{ranks} ranks, α = {want[0] * 1e6:g} µs, β = {want[1] / 1e9:g} GB/s{noise}"
    values = ask(function, ranks, sizes, seconds, given=given, what="a pair of numbers (α, β)", read=pair)
    for name, value, expected in zip("αβ", values, want):
        if not abs(value / expected - 1) <= tolerance:
            told, found = apart(expected, value, first=".4g")
            raise Wrong(f"{given}: expected {name} = {told}, got {found}")


CLAIMS, MOST_WRONG, MOST_OPEN, BOOK_OPEN = 400, 3, 50, 45.0  # the last two in %


@check
def claim_holds(function):
    """``function(simulated, past, least)``: "yes", "no" or "open" for a claim that a true ratio is above `least`."""
    wrong, unsure, example = 0, 0, ""
    for simulated, past, least, true in _claims():
        ends, pairs = brief(simulated, 3), brief([list(both) for both in past], 3)
        given = f"simulated {ends}, earlier pairs {pairs}, above {least:g}"
        answer = attempt(function, list(simulated), list(past), least, given=given)
        if not isinstance(answer, str) or answer not in ("yes", "no", "open"):
            raise Wrong(f'{given}: expected "yes", "no" or "open", got {typed(answer)}')
        if answer == "open":
            unsure += 1
        elif (answer == "yes") != (true > least):
            wrong += 1
            ends = [f"{end(s / p for p, s in past):.2f}" for end in (min, max)]
            told = f"the earlier factors simulated ÷ published are {' to '.join(ends)}"
            example = example or f"{given}: you say {answer!r}, and the true ratio is {true:.2f}; {told}"
    verdicts = f"{wrong} of {CLAIMS} verdicts {'is' if wrong == 1 else 'are'} wrong"
    if wrong > MOST_WRONG:
        raise Wrong(f"{verdicts}, and at most {MOST_WRONG} may be. The first: {example}")
    told = scored("claim_holds", 100 * unsure / CLAIMS, BOOK_OPEN, "% of the claims stay open", ".1f")
    if unsure > CLAIMS * MOST_OPEN / 100:
        raise Wrong(f"{verdicts}, but {told}; bring it to {MOST_OPEN} %")
    return f"{verdicts}, and {told}"


def _claims():
    """Return (simulated ratios, [(published, simulated)], least, true ratio): kinds differ in bias and in spread."""
    drawn, found = random.Random(1), []
    for _ in range(CLAIMS):
        # Up to a factor of two off; no margin serves both spreads, and two pairs would not show the larger one.
        bias, spread = drawn.uniform(-0.7, 0.7), drawn.choice((0.02, 0.02, 0.02, 0.35))
        count = drawn.randint(4 if spread > 0.1 else 2, 6)
        published = [math.exp(drawn.uniform(-0.5, 1.5)) for _ in range(count)]
        past = [(p, p * math.exp(bias + spread * drawn.gauss(0, 1))) for p in published]
        least = drawn.choice((1.0, 1.0, 1.5, 4.0))
        true = least * math.exp(drawn.uniform(-0.9, 0.9))
        simulated = [true * math.exp(bias + spread * drawn.gauss(0, 1))]
        if drawn.random() < 0.33:  # a constant is known by its two ends only, and the truth lies between them
            apart, place = drawn.uniform(0.2, 1), drawn.random()
            simulated = [simulated[0] * math.exp(share * apart) for share in (-place, 1 - place)]
            drawn.shuffle(simulated)
        found.append((simulated, past, least, true))
    return found
