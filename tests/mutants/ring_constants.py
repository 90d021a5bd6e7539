"""Wrong answers that checks.ring_constants must reject."""

WEIGHED = """\
    rows = np.stack([steps / t, steps * size / ranks / t], axis=1)
    (alpha, per_byte), *_ = np.linalg.lstsq(
        rows, np.ones(len(t)), rcond=None
    )
"""
EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("half a ring: reduce-scatter alone", "2 * (ranks - 1)", "(ranks - 1)"),
    ("a step too many", "2 * (ranks - 1)", "2 * ranks"),
    ("whole tensors on the way", "size / ranks", "size"),
    ("a plain fit, in which α drowns", WEIGHED, "    per_byte, alpha = np.polyfit(size / ranks, t / steps, 1)\n"),
    ("seconds a byte", "1 / per_byte", "per_byte"),
    ("the whole time is α", "alpha, 1", "alpha * steps, 1"),
]


def ring_constants(ranks, sizes, seconds):
    """A line through the smallest and the largest buffer only."""
    steps = 2 * (ranks - 1)
    small, large = sizes[0] / ranks, sizes[-1] / ranks
    first, last = seconds[0] / steps, seconds[-1] / steps
    per_byte = (last - first) / (large - small)
    return first - small * per_byte, 1 / per_byte
