"""Wrong answers that checks.batch_for must reject."""

# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("n½ whatever the share", "share / (1 - share) * t0 / t1", "t0 / t1"),
    ("the share of n½", "share / (1 - share) * t0 / t1", "share * t0 / t1"),
    ("upside down", "share / (1 - share) * t0 / t1", "(1 - share) / share * t0 / t1"),
    ("t1 ÷ t0", "t0 / t1)", "t1 / t0)"),
    ("rounded down", "math.ceil(", "math.floor("),
    ("not a whole number", "math.ceil(share / (1 - share) * t0 / t1)", "share / (1 - share) * t0 / t1"),
    ("ordinary least squares", "np.stack([1 / t, b / t], axis=1)", "np.stack([1 / t, b / t], axis=1) ** 2"),
    ("t0 is left out", "[1 / t, b / t]", "[0 * t, b / t]"),
    ("nothing is returned", "return math", "math"),
]

# what is wrong, a whole function
FUNCTIONS = [
    (
        "the first measured batch that is good enough",
        """
def batch_for(batches, seconds, share):
    limit = (batches[-1] - batches[-2]) / (seconds[-1] - seconds[-2])
    return next(b for b, t in zip(batches, seconds) if b / t >= share * limit)
""",
    ),
]
