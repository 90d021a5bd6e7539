"""The compiled loops: they do what their Python says, on any length, and refuse in one line what they can't do."""

import numba
import numpy as np
import pytest

from d2lmini.measuring import memory_loops
from d2lmini.measuring.memory_hierarchy import WORDS, cycle
from d2lmini.measuring.memory_loops import compiled


def test_the_compiled_chase_goes_where_python_goes():
    order = cycle(np.random.default_rng(1).permutation(37))
    for steps in (0, 1, 36, 37, 38, 1000):
        assert compiled("chase")(order, np.uint64(0), steps) == memory_loops.chase(order.tolist(), 0, steps)


def test_places_are_unsigned_so_that_no_load_pays_for_negative_ones():
    order, at, _ = compiled("chase").nopython_signatures[0].args
    assert (str(order.dtype), str(at)) == ("uint64", "uint64")


def test_many_chains_go_where_each_would_go_alone():
    order = cycle(np.random.default_rng(2).permutation(50))
    starts = np.array([0, 7 * WORDS, 49 * WORDS], dtype=np.uint64)
    places = starts.copy()
    compiled("chase_many")(order, places, 33)
    assert places.tolist() == [compiled("chase")(order, start, 33) for start in starts]


@pytest.mark.parametrize("length", [1, 2, 7, 64, 1003])
def test_streaming_loops_compute_what_numpy_does(length):
    rng = np.random.default_rng(length)
    a, b, c = (rng.integers(-8, 9, length).astype(float) for _ in range(3))  # their sums are exact in any order
    assert compiled("read")(a, 3) == 3 * a.sum()
    assert compiled("read")(a, 0) == 0
    scale = 0.5
    compiled("triad")(a, b, c, scale, 2)
    assert np.array_equal(a, b + scale * c)


def test_what_cannot_be_compiled_is_said_in_one_line(monkeypatch):
    compiled.cache_clear()
    monkeypatch.setattr(numba.config, "DISABLE_JIT", 1)
    with pytest.raises(RuntimeError, match="NUMBA_DISABLE_JIT"):
        compiled("chase")
