"""Wrong answers to the exercise fit-line, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the two change places", "return alpha, 1 / slope", "return 1 / slope, alpha"),
    ("seconds a byte in place of bytes a second", "return alpha, 1 / slope", "return alpha, slope"),
    ("n½ in place of β", "return alpha, 1 / slope", "return alpha, alpha / slope"),
    ("α is left out of the equations", "[1 / t, n / t]", "[0 * t, n / t]"),
    ("weights upside down", "[1 / t, n / t]", "[t, n * t]"),
    ("the smallest sizes are dropped", "n, t = np.array(sizes, dtype=float), np.array(seconds)",
     "n, t = np.array(sizes, dtype=float)[8:], np.array(seconds)[8:]"),
    ("only the largest size", "np.ones(len(n))", "1.0 * (n == n.max())"),
    ("microseconds", "return alpha, 1 / slope", "return alpha * 1e6, 1 / slope"),
    ("gigabytes", "return alpha, 1 / slope", "return alpha, 1e-9 / slope"),
    ("nothing is returned", "return alpha, 1 / slope", "alpha, 1 / slope"),
]  # fmt: skip


def fit_line(sizes, seconds):
    """Ordinary least squares."""
    slope, alpha = np.polyfit(sizes, seconds, 1)
    return alpha, 1 / slope


def fit_line(sizes, seconds):
    """A line through the logarithms."""
    slope, alpha = np.polyfit(np.log(sizes), np.log(seconds), 1)
    return np.exp(alpha), np.exp(-slope)


def fit_line(sizes, seconds):
    """The smallest time is α, the largest rate is β."""
    return min(seconds), max(n / t for n, t in zip(sizes, seconds))


def fit_line(sizes, seconds):
    """Through the first and the last point."""
    slope = (seconds[-1] - seconds[0]) / (sizes[-1] - sizes[0])
    return seconds[0] - slope * sizes[0], 1 / slope
