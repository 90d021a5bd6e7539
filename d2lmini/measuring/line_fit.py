"""A line through measured times: ``seconds = α + bytes ÷ β``, with confidence intervals, by least squares.

α is what a copy of nothing takes, β the rate that a large one approaches. At the size n½ = α·β a copy takes 2α and
moves at half the rate; below it α decides, above it β (Hockney, "The communication challenge for MPP", Parallel
Computing 20, 1994, who writes r∞ for β).
"""

from dataclasses import dataclass, field

import numpy as np
from scipy.special import stdtrit

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Fit:
    """A fitted line and the points it was fitted to.

    Attributes:
        alpha: Seconds of a copy of nothing.
        beta: Bytes a second of a large copy.
        alpha_interval, beta_interval: The lower and upper end of what the points allow at 95 % confidence, infinite
            where they set no bound.
        sizes: Bytes of each point.
        seconds: Measured, of each point.
    """

    alpha: float
    beta: float
    alpha_interval: tuple
    beta_interval: tuple
    sizes: tuple = field(repr=False)
    seconds: tuple = field(repr=False)

    @property
    def half(self):
        """The size in bytes at which a copy moves at half the rate β."""
        return self.alpha * self.beta

    def predict(self, nbytes):
        """Return the seconds that a copy of `nbytes` should take; an array for a list or an array."""
        return self.alpha + np.asarray(nbytes) / self.beta

    @property
    def residuals(self):
        """What the line leaves unexplained of each point: (measured − predicted) ÷ measured."""
        return tuple(float(r) for r in 1 - self.predict(self.sizes) / np.asarray(self.seconds))

    def median_error(self, least=0):
        """Return the median size of the residuals, a fraction, over copies of at least `least` bytes.

        Raises:
            ValueError: No copy is as large.
        """
        errors = [abs(r) for n, r in zip(self.sizes, self.residuals) if n >= least]
        if not errors:
            raise ValueError(f"the largest of the fitted sizes is {max(self.sizes)} bytes, expected one of {least}")
        return float(np.median(errors))


def fit(sizes, seconds):
    """Return the `Fit` of ``seconds = alpha + sizes / beta`` with the least sum of squared RELATIVE residuals.

    Noise grows with what is measured: a copy of a second is known to some hundredths of it, one of a microsecond to
    some hundredths of that. Plain least squares counts seconds, so the largest copies alone would decide, and α could
    come out as anything. Each point's equation is therefore divided by its measured time. (That makes α too small, and
    β too large, by about twice the square of the relative noise: half a percent where the noise is 5 %.)

    The intervals are those of linear regression, Student's t with two degrees of freedom fewer than points. They hold
    if the times lie around a line; look at the residuals before you believe them.

    Raises:
        ValueError: For lists of unequal length, fewer than 3 points, fewer than 2 different sizes, a time that is not
            positive, or times that do not grow with the size.
    """
    n, t = _checked(sizes, seconds)
    (slope, alpha), covariance = np.polyfit(n, t, 1, w=1 / t, cov=True)
    if slope <= 0:
        raise ValueError("the times do not grow with the size, so they have no rate: measure larger copies, or more")
    times = float(stdtrit(len(n) - 2, (1 + CONFIDENCE) / 2))  # how many standard errors the interval reaches
    slope_error, alpha_error = times * np.sqrt(np.diag(covariance))
    low, high = slope - slope_error, slope + slope_error
    beta_interval = float(1 / high), float(1 / low) if low > 0 else float("inf")
    alpha_interval = float(alpha - alpha_error), float(alpha + alpha_error)
    return Fit(float(alpha), float(1 / slope), alpha_interval, beta_interval, tuple(n.tolist()), tuple(t.tolist()))


@dataclass(frozen=True)
class Sweep:
    """What was measured at several sizes: for each of `sizes`, in bytes or examples, a `timing.Measurement`."""

    sizes: tuple
    measurements: tuple

    @property
    def seconds(self):
        """The median of each size: a copy's time, or the latency of a step."""
        return tuple(m.median for m in self.measurements)

    @property
    def rates(self):
        """Bytes or examples a second at each size: the throughput."""
        return tuple(size / seconds for size, seconds in zip(self.sizes, self.seconds))

    def fit(self, least=0):
        """Return the `Fit` to the medians of the sizes of at least `least`."""
        return fit(*zip(*[(n, t) for n, t in zip(self.sizes, self.seconds) if n >= least]))


def _checked(sizes, seconds):
    if len(sizes) != len(seconds):
        raise ValueError(f"expected a time for each size, got {len(sizes)} sizes and {len(seconds)} times")
    n, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if len(n) < 3 or len(set(n.tolist())) < 2:
        raise ValueError(f"expected at least 3 points of at least 2 sizes, got {len(n)} of {len(set(n.tolist()))}")
    for i, value in enumerate(t):
        if not (value > 0 and np.isfinite(value)):
            raise ValueError(f"expected positive times, got {value} s at place {i}, for {n[i]:.0f} bytes")
    return n, t
