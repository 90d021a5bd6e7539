"""The labs on layouts: right answers that are written otherwise than the book's pass, and better ones too."""

import numpy as np
import pytest
import torch

from d2lmini import checks, parallel
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


def test_a_step_is_that_of_the_schedule():
    """Equal stages: (micro-batches + stages − 1) times a stage's forward and backward."""
    assert _pipeline_seconds([3, 3, 3], 0, batches=5) == (5 + 2) * 9
