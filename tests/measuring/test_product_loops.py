"""Libraries against plain loops: the loops compute what libraries do; that all is measured, two chapters show."""

import numpy as np
import pytest

from d2lmini.measuring import library_calls, product_loops
from d2lmini.timing import Measurement


@pytest.mark.parametrize("length", [1, 2, 8, 64])
def test_the_loop_transforms_as_numpy_does(length):
    x = np.random.default_rng(length).normal(size=(length, 2)) @ [1, 1j]
    assert np.allclose(library_calls.fourier_loop(x), np.fft.fft(x))


def test_the_loop_fills_with_numbers_from_0_to_1():
    out = np.full(1000, 7.0)
    library_calls.random_loop(out)
    assert out.min() >= 0
    assert out.max() < 1
    assert 0.4 < out.mean() < 0.6


def test_a_library_that_disagrees_is_not_measured(monkeypatch):
    monkeypatch.setattr(library_calls, "ways", lambda: {"half": (lambda: np.ones(2), lambda: np.ones(2) / 2)})
    with pytest.raises(RuntimeError, match="disagree"):
        library_calls.measure_here()


def test_of_several_rounds_the_shortest_counts_for_each_way(monkeypatch):
    seconds = iter([5, 6, 7, 4, 8, 9, 3, 5, 8])
    monkeypatch.setattr(library_calls, "ways", lambda: {"same": (lambda: 1.0, lambda: 1.0)})
    monkeypatch.setattr(library_calls, "_timed", lambda call, cores: Measurement((next(seconds),) * 6))
    (found,) = library_calls.measure_here().values()
    assert [way.seconds[0] for way in found] == [3, 5, 7]


def test_a_wrong_product_is_not_measured(monkeypatch):
    monkeypatch.setattr(product_loops, "loops_ikj", lambda A, B, C: C.fill(1))
    monkeypatch.setattr(product_loops, "compiled", lambda function: function)
    with pytest.raises(RuntimeError, match="wrong product"):
        product_loops.measure_here(8, 4, 6)
