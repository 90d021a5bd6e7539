"""The figure on layouts knows the memory and time of every layout that its controls can choose."""

import json
import re

import pytest

from d2lmini.figures.layout_frames import CONTROLS, GIB, LayoutRace
from d2lmini.parallel import MODELS, Layout, measured_seconds, memory_bytes, search, step_seconds
from d2lmini.parallel.layout_search import H100, PACE

EIGHT_B = MODELS["8B"]


@pytest.fixture(scope="module")
def page():
    return LayoutRace({"8B": (EIGHT_B, 32)}, 16, {"tensor": 8})._repr_html_()


@pytest.fixture(scope="module")
def model(page):
    return json.loads(re.search(r'<script type="application/json">(.*?)</script>', page)[1])["models"]["8B"]


@pytest.mark.parametrize(
    ("layout", "settings"),
    [
        (Layout(2, 8, 1, 3, 2, 8, 0.5, 4, sequence=True), "8 1 1 1 1 3 2 0.5"),
        (Layout(4, 1, 2, 1, 1, 8, gradient=4, chunks=4, context=2), "1 2 4 2 1 1 1 0"),
        (Layout(16, level=3, batches=2, gradient=4, shards=8), "1 1 1 1 1 hybrid 1 0"),
    ],
)
def test_numbers_are_those_of_the_formula(model, layout, settings):
    first, _, last = settings.rpartition(" ")
    numbers = model["rows"][first][last]
    assert [n / 10 for n in numbers[:4]] == pytest.approx(
        [part / GIB for part in memory_bytes(EIGHT_B, layout).values()], abs=0.05
    )
    took = step_seconds(EIGHT_B, layout, H100, measured_seconds, PACE)
    assert sum(numbers[4:]) / 1e3 == pytest.approx(sum(took.values()), abs=3e-3)
    assert numbers[4] / 1e3 == pytest.approx(took["compute"], abs=1e-3)


def test_the_ten_best_are_those_of_the_search(model):
    found = [speed for speed, one in search(EIGHT_B, 16, 32) if one.sequence == (one.tensor > 1)]
    assert [speed for _, speed in model["best"]] == [round(speed) for speed in found[:10]]


def test_each_setting_has_a_control_with_a_label(page):
    assert "{{" not in page
    labels = re.findall(r'<label for="([^"]+)">', page)
    assert labels == re.findall(r'<select id="([^"]+)"', page)
    assert [label.rsplit("-", 1)[1] for label in labels] == ["model", *CONTROLS]
    assert re.search(r'name="tensor".*<option selected>8<', page)
