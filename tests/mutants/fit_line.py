EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the two change places", "return alpha, 1 / slope", "return 1 / slope, alpha"),
    ("seconds a byte in place of bytes a second", "return alpha, 1 / slope", "return alpha, slope"),
    ("n½ in place of β", "return alpha, 1 / slope", "return alpha, alpha / slope"),
    (
        "the smallest sizes are dropped",
        "n, t = np.array(sizes, dtype=float), np.array(seconds)",
        "n, t = np.array(sizes, dtype=float)[8:], np.array(seconds)[8:]",
    ),
    (
        "every second size is dropped",
        "n, t = np.array(sizes, dtype=float), np.array(seconds)",
        "n, t = np.array(sizes, dtype=float)[::2], np.array(seconds)[::2]",
    ),
    ("nothing is returned", "return alpha, 1 / slope", "alpha, 1 / slope"),
    ("the sizes are known beforehand", "np.array(sizes, dtype=float), np", "2.0 ** np.arange(10, 29), np"),
]


def fit_line(sizes, seconds):
    """Ordinary least squares."""
    slope, alpha = np.polyfit(sizes, seconds, 1)
    return alpha, 1 / slope


def fit_line(sizes, seconds):
    """Weights in between: large sizes still count more."""
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / np.sqrt(seconds))
    return alpha, 1 / slope


def fit_line(sizes, seconds):
    """Weights that polyfit squares again: small sizes count more."""
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds) ** 2)
    return alpha, 1 / slope
