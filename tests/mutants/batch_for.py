EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("rounded down", "math.ceil(", "math.floor("),
    ("not a whole number", "math.ceil(share / (1 - share) * t0 / t1)", "share / (1 - share) * t0 / t1"),
    ("nothing is returned", "return math", "math"),
]


def batch_for(batches, seconds, share):
    """A line through the first point and the last."""
    t1 = (seconds[-1] - seconds[0]) / (batches[-1] - batches[0])
    return math.ceil(share / (1 - share) * (seconds[0] - batches[0] * t1) / t1)


def batch_for(batches, seconds, share):
    """The first measured batch that is good enough."""
    limit = (batches[-1] - batches[-2]) / (seconds[-1] - seconds[-2])
    return next(b for b, t in zip(batches, seconds) if b / t >= share * limit)


def batch_for(batches, seconds, share):
    """A fit of the last three batches."""
    t1, t0 = np.polyfit(batches[-3:], seconds[-3:], 1)
    return math.ceil(share / (1 - share) * t0 / t1)


def batch_for(batches, seconds, share):
    """A fit of the first two batches."""
    t1, t0 = np.polyfit(batches[:2], seconds[:2], 1)
    return math.ceil(share / (1 - share) * t0 / t1)
