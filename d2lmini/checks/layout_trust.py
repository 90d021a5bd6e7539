"""Checks of the exercises on trust in a formula: a pace that is tested on other runs, and a search with bounds."""

import math
import random
from dataclasses import replace
from functools import cache

import torch

import simgpu
from d2lmini.checks.mechanism import (
    Wrong,
    apart,
    ask,
    brief,
    check,
    listed,
    many,
    must_be,
    need_gpus,
    number,
    scored,
    typed,
)
from d2lmini.parallel.layout import Layout
from d2lmini.parallel.layout_search import H100, MODELS, measured_seconds
from d2lmini.parallel.layout_time import step_seconds
from simgpu.hardware.machines import build

RUNS = (  # (computing, messages, real) in ms, the first for the fit
    ((80, 20, 116), (80, 50, 160)),
    ((50, 10, 80), (50, 40, 105), (200, 5, 300), (20, 60, 88)),
    ((30, 0, 27), (60, 6, 66), (10, 90, 99)),
    ((400, 25, 525), (100, 100, 180)),
    ((64, 32, 144),),
)
GPUS, LAYERS = 4, 2
SHAPE = replace(MODELS["8B"], layers=LAYERS, words=MODELS["8B"].words // 16)
STEPS = (  # eight sequences on four GPUs
    Layout(data=4, batch=2, gradient=4),
    Layout(data=2, tensor=2, batch=4, level=3, gradient=4),
    Layout(data=2, tensor=2, batch=4, gradient=4),
    Layout(data=2, pipeline=2, batches=4, gradient=4),
    Layout(data=2, pipeline=2, batch=2, batches=2, gradient=4),
    Layout(tensor=4, batch=8, gradient=4),
)
WHOLE = (1.0, 1.3)  # a simulated step ÷ the formula's time
BOUNDS = (WHOLE, (0.83, 1.2), (0.97, 1.03), (1.2, 2.0))
DRAWN, MOST = 60, 1.1  # cases, and steps that may be run, against the book's answer


@check
def held_out(function):
    """``function(runs)``: (the pace of the first run, [error of the speed of each other run])."""
    for runs in RUNS:
        given = f"runs {', '.join(map(str, runs))}"
        what = f"a pace and a list of {many(len(runs) - 1, 'error')}"
        pace, errors = ask(function, [tuple(run) for run in runs], given=given, what=what, read=_pace_and_errors)
        compute, messages, real = runs[0]
        want = (real - messages) / compute
        slips = {
            "that multiplies the messages too": real / (compute + messages),
            "subtract the messages from the real time first": real / compute,
        }
        must_be(want, pace, given=f"{given}: the pace", slips=slips)
        if len(errors) != len(runs) - 1:
            raise Wrong(f"{given}: expected {many(len(runs) - 1, 'error')}, one a held-out run, got {brief(errors)}")
        for run, error in zip(runs[1:], errors):
            _must_be_error(f"{given}: run {run} with pace {want:g}", want, run, error)
    return "computing is multiplied by the pace, messages are not, and the run of the fit is no test"


def _pace_and_errors(answer):
    both = listed(answer, 2)
    if both is None or number(both[0]) is None:
        return None
    errors = [number(error) for error in listed(both[1]) or ()]
    return None if listed(both[1]) is None or None in errors else (number(both[0]), errors)


def _must_be_error(given, pace, run, got):
    compute, messages, real = run
    takes = pace * compute + messages
    want = real / takes - 1
    if not math.isclose(got, want, rel_tol=1e-6, abs_tol=1e-9):
        slips = {
            " (that is the error of the time)": takes / real - 1,
            " (give it its sign: plus where the formula is too fast)": abs(want),
            " (that is without the pace)": real / (compute + messages) - 1,
            " (messages are not multiplied by the pace)": real / (pace * (compute + messages)) - 1,
            " (that is in per cent)": 100 * want,
        }
        hint = next((hint for hint, value in slips.items() if math.isclose(got, value, rel_tol=1e-6)), "")
        told, found = apart(want, got)
        raise Wrong(f"{given} takes {takes:g} ms by the formula and {real:g} ms: expected {told}, got {found}{hint}")


@check
def fastest(function):
    """``function(formula, run, low, high)``: the place of the fastest layout, found with few steps that are run."""
    need_gpus(GPUS, numbers=False)
    formula = [_formula_seconds(i) for i in range(len(STEPS))]
    cases = [(formula, _whole_seconds, WHOLE, f"{len(STEPS)} layouts on {GPUS} simulated H100")]
    cases += [(times, true.__getitem__, ends, f"{many(len(times), 'layout')}") for times, true, ends in _drawn()]
    mine = book = 0
    for times, seconds, ends, what in cases:
        given = (
            f"{what}: {', '.join(f'{1e3 * t:.0f}' for t in times)} ms by the formula, bounds {ends[0]} and {ends[1]}"
        )
        run, ran = _counted(seconds, len(times))
        answer = ask(function, times, run, *ends, given=given, what="the place of a layout", read=_place)
        if not 0 <= answer < len(times):
            raise Wrong(f"{given}: expected a place from 0 to {len(times) - 1}, got {answer}")
        needs, needed = _counted(seconds, len(times))
        best = _book(times, needs, *ends)
        took, least = seconds(answer), seconds(best)
        if took > least:
            told = f"you ran {brief(ran)}" if ran else "you ran no step"
            raise Wrong(
                f"{given}: layout {answer} takes {1e3 * took:.1f} ms, layout {best} only {1e3 * least:.1f}; {told}"
            )
        mine, book = mine + len(ran), book + len(needed)
    told = scored("fastest", mine, book, "steps were run", "d")
    if mine > MOST * book:
        raise Wrong(f"right in {len(cases)} cases, but {told}; at most {MOST * book:.0f} may be")
    return f"right in {len(cases)} cases, and {told}"


def _counted(seconds, count):
    """Return a function that runs a layout's step and returns its seconds, and the list of those that were run."""
    ran = []

    def run(place):
        found = _place(place)
        if found is None or not 0 <= found < count:
            raise ValueError(f"expected the place of a layout, from 0 to {count - 1}, got {typed(place)}")
        ran.append(found)
        if len(ran) > 10 * count:
            raise RuntimeError(f"{len(ran)} steps of {many(count, 'layout')} were run: a loop does not end")
        return seconds(found)

    return run, ran


def _place(answer):
    found = number(answer)
    return None if found is None or found != int(found) else int(found)


def _book(formula, run, low, high):
    """Return the place of the fastest; run, of those still possible, the one with the lowest bound."""
    least, most = ([end * t for t in formula] for end in (low, high))
    while True:
        best = min(range(len(formula)), key=most.__getitem__)
        rivals = [i for i in range(len(formula)) if i != best and least[i] < most[best]]
        if not rivals:
            return best
        unknown = [i for i in (best, *rivals) if least[i] < most[i]]
        i = min(unknown, key=least.__getitem__)
        least[i] = most[i] = run(i)


@cache
def _formula_seconds(place):
    parts = step_seconds(SHAPE, STEPS[place], H100, measured_seconds)
    return sum(parts.values()) - parts["update"]


@cache
def _whole_seconds(place):
    """Return what a whole step takes on the simulated GPUs, on the clock of H100s."""
    from d2lmini.parallel.whole_step import run_whole_step  # torch's pipelines: half a second that no other check needs

    clock = simgpu.Clock(build(max(GPUS, torch.sim.device_count()), H100.name), mode="compiled")
    with simgpu.use_clock(clock):
        ranks = simgpu.spawn(run_whole_step, (SHAPE, STEPS[place]), nprocs=GPUS)
    return max(seconds for seconds, _ in ranks)


def _drawn():
    """Return (the formula's times, the true ones, bounds of their ratio): none, some or all layouts are near."""
    drawn, found = random.Random(2), []
    for i in range(DRAWN):
        low, high = BOUNDS[i % len(BOUNDS)]
        count, spread = drawn.choice((1, 2, 2, 3, 5, 9)), drawn.choice((0.0, 0.05, 0.3, 1.0))
        formula = [0.05 * math.exp(spread * drawn.random()) for _ in range(count)]
        found.append((formula, [t * drawn.uniform(low, high) for t in formula], (low, high)))
    return found
