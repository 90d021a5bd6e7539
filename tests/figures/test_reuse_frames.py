"""Drawings of the tiled product and the systolic array: they show what the algorithms did, small and described."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest

from d2lmini.figures import reuse_frames
from d2lmini.figures.reuse_frames import NOW, systolic_alt, systolic_array, tiling, tiling_alt
from d2lmini.reuse.array_cost import DATAFLOWS
from d2lmini.reuse.tiling import CountedMatrix, tiled_product


def filled(sheet, colour):
    """Return how many squares and boxes of a drawing have a colour."""
    root = ET.fromstring(sheet._repr_svg_())
    squares = sum(e.get("d").count("M") for e in root.iter() if e.get("d") and e.get("fill") == colour)
    return squares + sum(e.get("fill") == colour for e in root.iter() if e.tag.endswith("rect"))


def words(sheet):
    return [e.text for e in ET.fromstring(sheet._repr_svg_()).iter() if e.tag.endswith("text")]


@pytest.mark.parametrize("tile", [1, 2, 3, 6])
def test_tiling_counts_as_the_formula_does(tile):
    assert f"{2 * 6**3 // tile} elements fetched so far" in words(tiling(tile, 216))
    counts = [int(re.search(r"(\d+) elements fetched", tiling_alt(tile, work))[1]) for work in range(1, 217)]
    assert counts == sorted(counts)
    in_use = 6 + 6 + 1 if tile == 1 else 3 * tile * tile
    assert {filled(tiling(tile, work), NOW) for work in range(1, 217, 5)} == {in_use}


def test_tiling_where_the_tiles_do_not_divide():
    assert "8 elements fetched so far" in words(tiling(2, 8, n=3))
    assert "12 elements fetched so far" in words(tiling(2, 9, n=3))  # a column of two and a row of two
    assert "36 elements fetched" in tiling_alt(2, 27, n=3)


class Recorded(CountedMatrix):
    """A counting memory that notes the places of each access in a list."""

    def __init__(self, n, name, record):
        super().__init__(np.ones((n, n)))
        self.name, self.record, self.places = name, record, np.arange(n * n).reshape(n, n)

    def __getitem__(self, index):
        self.record.append((self.name, self.places[index]))
        return super().__getitem__(index)

    def __setitem__(self, index, part):
        self.record.append((self.name, self.places[index]))
        super().__setitem__(index, part)


@pytest.mark.parametrize(("n", "tile"), [(6, 1), (6, 2), (6, 6), (5, 3), (7, 2)])
def test_tiling_draws_the_tiles_that_the_product_fetches_and_stores(n, tile):
    record, depth = [], n if tile == 1 else tile
    tiled_product(*(Recorded(n, name, record) for name in "ABC"), tile, tile, depth)
    drawn = [
        {name: np.array([i * n + j for i, j in places]) for name, places in step.items()}
        for step in reuse_frames._tile_steps(n, tile)
    ]
    each = -(-n // depth)  # steps before a tile of C is stored
    told = [(name, step[name]) for k, step in enumerate(drawn, 1) for name in ("ABC" if k % each == 0 else "AB")]
    assert [name for name, _ in told] == [name for name, _ in record]
    assert all(np.array_equal(a, b.ravel()) for (_, a), (_, b) in zip(told, record, strict=True))
    assert all(np.array_equal(step["C"], drawn[k - k % each]["C"]) for k, step in enumerate(drawn))


def test_tiling_says_which_tiles_are_in_use():
    text = tiling_alt(3, 100)
    assert "rows 0 to 2, columns 3 to 5 of A and rows 3 to 5, columns 3 to 5 of B" in text
    assert "for rows 0 to 2, columns 3 to 5 of C; 72 elements" in text


@pytest.mark.parametrize("dataflow", DATAFLOWS)
def test_systolic_array_colours_the_elements_that_multiply(dataflow):
    work = [filled(systolic_array(dataflow, cycle), NOW) for cycle in range(1, 11)]
    assert sum(work) == 27
    told = [int(re.search(r"(\d) of 9 cells multiply", systolic_alt(dataflow, cycle))[1]) for cycle in range(1, 11)]
    assert told == work


def test_systolic_array_shows_who_holds_what():
    assert "cell 1,1 c11: 3/3, a12 →, ↓ b21" in systolic_alt("output", 5)
    assert "moving the sums out" in systolic_alt("output", 8)
    assert "cell 2,0 b20, a02 →, ↓ c00: 3/3" in systolic_alt("weight", 6)
    assert "cell 2,0 a02, b20 →, ↓ c00: 3/3" in systolic_alt("input", 6)
    assert "cell 0,2 a20, b00 →, ↓ c20: 1/3" in systolic_alt("input", 6)
    assert systolic_alt("weight", 2).endswith("cell 0,0 b10; cell 0,1 b21; cell 1,0 b20")
    assert "cell 2,1 c11: 3/3" in systolic_alt("output", 8)  # one row further down than it was computed


def test_drawings_are_small_and_fit_a_phone():
    for sheet in (tiling(2, 100), systolic_array("weight", 6)):
        assert len(sheet._repr_svg_()) < 5000
        assert sheet.size[0] <= 330
