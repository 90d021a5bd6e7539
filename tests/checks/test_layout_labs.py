"""The exercises on layouts: right answers that are written otherwise than the book's pass, and better ones too."""

from fractions import Fraction

import numpy as np
import pytest
import torch

from d2lmini import checks, parallel
from d2lmini.checks import layout_trust
from d2lmini.checks.layout_labs import RACE, _pipeline_seconds
from d2lmini.parallel import Layout


def found_by_search():
    shape, sequences = RACE["long"]
    return of_other_numbers() | {"long": parallel.search(shape, 64, sequences)[0][1]}


def of_other_numbers():
    """NumPy's and torch's integers, a share of the layers recomputed, ZeRO-1 left out where no replicas are."""
    return {
        "8x7B": Layout(np.int64(4), 1, 8, 1, 1, 64, chunks=np.int64(2), context=2, expert=8),
        "70B": Layout(torch.tensor(64), batch=4, level=3, recomputed=0.98),
        "long": Layout(4, 2, level=3, batches=2, context=8, sequence=1),
    }


@pytest.mark.parametrize("answer", [found_by_search, of_other_numbers])
def test_right_layouts_pass(answer, capsys):
    assert checks.choose_layouts(answer), capsys.readouterr().out


def from_the_last(layers, stages, logits):
    """The smallest time that all stages can keep, and the first stages have what is left."""
    time = min(
        t
        for t in (*range(1, layers + 1), *(n + logits for n in range(1, layers + 1)))
        if room(t, stages, logits) >= layers
    )
    split = [max(1, int(time - logits))] + [int(time)] * (stages - 1)
    while sum(split) > layers:
        split[split.index(max(split))] -= 1
    return torch.tensor(split[::-1])


def room(time, stages, logits):
    return (stages - 1) * int(time) + max(int(time - logits), 1 if stages > 1 else 0)


@pytest.mark.parametrize("answer", [from_the_last, lambda *given: tuple(float(n) for n in from_the_last(*given))])
def test_right_stages_pass(answer, capsys):
    assert checks.stage_layers(answer), capsys.readouterr().out


def by_lowest_bound(formula, run, low, high):
    """The best is the one that may take least, and NumPy keeps the bounds."""
    least, most = low * np.array(formula), high * np.array(formula)
    while True:
        best = least.argmin()
        others = np.arange(len(least)) != best
        if (least[others] >= most[best]).all():
            return best
        least[best] = most[best] = run(best)


def in_the_formulas_order(formula, run, low, high):
    """One after another, until none that is left can be faster; a step is run even where none is needed."""
    fastest = (float("inf"), -1)
    for i in sorted(range(len(formula)), key=formula.__getitem__):
        if low * formula[i] >= fastest[0]:
            break
        fastest = min(fastest, (run(i), i))
    return float(fastest[1])


@pytest.mark.parametrize("answer", [by_lowest_bound, in_the_formulas_order])
def test_right_searches_pass(answer, capsys):
    assert checks.fastest(answer), capsys.readouterr().out


def test_the_formula_is_a_lower_bound_of_the_labs_steps():
    """All six, not only those that a good search runs: else the lab's bounds would not hold."""
    checks.fastest(in_the_formulas_order)
    ratios = [layout_trust._whole_seconds(i) / layout_trust._formula_seconds(i) for i in range(len(layout_trust.STEPS))]
    assert all(layout_trust.WHOLE[0] <= ratio <= layout_trust.WHOLE[1] for ratio in ratios)


def held_out_of_fractions(runs):
    """Exact numbers, and a tuple of errors."""
    (compute, messages, real), *others = [list(map(Fraction, run)) for run in runs]
    pace = (real - messages) / compute
    return pace, tuple((r - pace * c - m) / (pace * c + m) for c, m, r in others)


def held_out_in_arrays(runs):
    compute, messages, real = np.array(runs, dtype=float).T
    pace = (real[0] - messages[0]) / compute[0]
    return pace, (real / (pace * compute + messages) - 1)[1:]


@pytest.mark.parametrize("answer", [held_out_of_fractions, held_out_in_arrays])
def test_right_errors_pass(answer, capsys):
    assert checks.held_out(answer), capsys.readouterr().out


def test_a_step_is_that_of_the_schedule():
    """Equal stages: (micro-batches + stages − 1) times a stage's forward and backward."""
    assert _pipeline_seconds([3, 3, 3], 0, batches=5) == (5 + 2) * 9
