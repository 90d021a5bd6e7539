"""Libraries against plain loops, measured: three jobs and products of several sizes, in a process of their own."""

import numpy as np
import pytest

from d2lmini.measuring import library_calls

SMALL = {"random numbers": 100, "Fourier transform": 16, "complex product": 5}


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


@pytest.mark.process
def test_each_job_is_measured_in_three_ways_in_a_process_that_is_not_held_back(monkeypatch):
    pytest.importorskip("numba")
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    found, where = library_calls.measured(SMALL)
    assert set(found) == set(SMALL)
    assert all(len(ways) == 3 and min(way.seconds[0] for way in ways) > 0 for ways in found.values())
    assert "MKL_CBWR" not in where


@pytest.mark.process
def test_products_are_measured_by_size():
    found, _ = library_calls.measured_products([1, 300])
    assert found[1].median < found[300].median


def test_a_library_that_disagrees_is_not_measured(monkeypatch):
    monkeypatch.setattr(library_calls, "ways", lambda sizes: {"half": (lambda: np.ones(2), lambda: np.ones(2) / 2)})
    with pytest.raises(RuntimeError, match="disagree"):
        library_calls.measure_here(SMALL)
