"""The line through measured times: against known lines, another solver, and its errors."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import t as student

from d2lmini.measuring.line_fit import fit

SIZES = [2**k for k in range(10, 29)]


def times(alpha, beta, noise=0.0, seed=0):
    rng = np.random.default_rng(seed)
    return [(alpha + n / beta) * (1 + noise * rng.standard_normal()) for n in SIZES]


@given(st.floats(1e-8, 1e-2), st.floats(1e7, 1e12))
def test_exact_times_give_the_line_they_were_made_from(alpha, beta):
    line = fit(SIZES, times(alpha, beta))
    assert line.alpha == pytest.approx(alpha, rel=1e-6)
    assert line.beta == pytest.approx(beta, rel=1e-6)
    assert line.half == pytest.approx(alpha * beta, rel=1e-6)
    assert line.alpha_interval == pytest.approx((alpha, alpha), rel=1e-4)
    assert line.beta_interval == pytest.approx((beta, beta), rel=1e-4)
    assert line.median_error() < 1e-6


def test_numpy_finds_the_same_line_and_the_same_errors():
    seconds = np.array(times(2e-5, 6e9, noise=0.08))
    line = fit(SIZES, seconds)
    (slope, alpha), covariance = np.polyfit(SIZES, seconds, 1, w=1 / seconds, cov=True)
    assert (line.alpha, 1 / line.beta) == pytest.approx((alpha, slope), rel=1e-6)
    reach = student.ppf(0.975, len(SIZES) - 2)
    assert line.alpha_interval[1] - alpha == pytest.approx(reach * covariance[1, 1] ** 0.5, rel=1e-4)
    assert 1 / line.beta_interval[0] - slope == pytest.approx(reach * covariance[0, 0] ** 0.5, rel=1e-4)


def test_residuals_are_relative_to_what_was_measured():
    seconds = times(1e-5, 1e10, noise=0.1)
    line = fit(SIZES, seconds)
    for n, t, r in zip(SIZES, seconds, line.residuals):
        assert line.predict(n) == pytest.approx(t * (1 - r))
    sizes = sorted(abs(r) for r in line.residuals)
    assert line.median_error() == pytest.approx(sizes[9])
    large = sorted(abs(r) for n, r in zip(SIZES, line.residuals) if n >= 2**16)
    assert line.median_error(2**16) == pytest.approx(large[6])
    with pytest.raises(ValueError, match="268435456"):
        line.median_error(2**40)
    np.testing.assert_allclose(line.predict([0, 10]), [line.alpha, line.alpha + 10 / line.beta])
    assert line.predict(line.half) == pytest.approx(2 * line.alpha)


def test_points_that_set_no_bound_give_infinite_intervals():
    line = fit([1000, 2000, 3000], [1.0, 3.0, 2.0])
    assert line.beta_interval[1] == float("inf")


@pytest.mark.parametrize(
    ("sizes", "seconds", "says"),
    [
        ([1, 2, 3], [1, 2], "3 sizes and 2 times"),
        ([1, 2], [1, 2], "got 2 of 2"),
        ([5, 5, 5], [1, 2, 3], "got 3 of 1"),
        ([1, 2, 3], [1, 0, 2], "0.0 s at place 1"),
        ([1, 2, 3], [1, float("nan"), 2], "nan s at place 1"),
        ([1, 2, 3], [3, 2, 1], "do not grow"),
    ],
)
def test_bad_points_are_named(sizes, seconds, says):
    with pytest.raises(ValueError, match=says):
        fit(sizes, seconds)
