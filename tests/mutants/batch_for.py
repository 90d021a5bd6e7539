"""Wrong answers that checks.batch_for must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("n½ whatever the share", "share / (1 - share) * t0 / t1", "t0 / t1"),
    ("the share of n½", "share / (1 - share) * t0 / t1", "share * t0 / t1"),
    ("upside down", "share / (1 - share) * t0 / t1", "(1 - share) / share * t0 / t1"),
    ("t1 ÷ t0", "t0 / t1)", "t1 / t0)"),
    ("rounded down", "math.ceil(", "math.floor("),
    ("not a whole number", "math.ceil(share / (1 - share) * t0 / t1)", "share / (1 - share) * t0 / t1"),
    ("squared weights on one side alone", "np.stack([1 / t, b / t], axis=1)", "np.stack([1 / t, b / t], axis=1) ** 2"),
    ("a float", "math.ceil(share / (1 - share) * t0 / t1)", "float(math.ceil(share / (1 - share) * t0 / t1))"),
    ("t0 is left out", "[1 / t, b / t]", "[0 * t, b / t]"),
    ("nothing is returned", "return math", "math"),
]


def batch_for(batches, seconds, share):
    """The first measured batch that is good enough."""
    limit = (batches[-1] - batches[-2]) / (seconds[-1] - seconds[-2])
    return next(b for b, t in zip(batches, seconds) if b / t >= share * limit)


def batch_for(batches, seconds, share):
    """A line through the first point and the last."""
    t1 = (seconds[-1] - seconds[0]) / (batches[-1] - batches[0])
    return math.ceil(share / (1 - share) * (seconds[0] - batches[0] * t1) / t1)


def batch_for(batches, seconds, share):
    """The best rate that was measured as the limit."""
    t1, t0 = np.polyfit(batches, seconds, 1)
    limit = max(b / t for b, t in zip(batches, seconds))
    return next(b for b in range(1, 10**6) if b / (t0 + b * t1) >= share * limit)
