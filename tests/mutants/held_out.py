EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the pace multiplies the messages in the fit", "(real - messages) / compute", "real / (compute + messages)"),
    ("the messages of the fit are not subtracted", "(real - messages)", "real"),
    ("the pace multiplies the messages of the predictions", "pace * c + m", "pace * (c + m)"),
    ("the predictions have no pace", "pace * c", "c"),
    ("errors of the time", "r / (pace * c + m) - 1", "(pace * c + m) / r - 1"),
    ("the run of the fit counts as a prediction", "runs[1:]", "runs"),
    ("errors without a sign", "r / (pace * c + m) - 1", "abs(r / (pace * c + m) - 1)"),
    ("errors in per cent", "r / (pace * c + m) - 1", "100 * (r / (pace * c + m) - 1)"),
]


def held_out(runs):
    """The pace is fitted to all runs."""
    pace = sum(r - m for _, m, r in runs) / sum(c for c, _, _ in runs)
    return pace, [r / (pace * c + m) - 1 for c, m, r in runs[1:]]


def held_out(runs):
    """Each run has a pace of its own, so that no error is left."""
    compute, messages, real = runs[0]
    return (real - messages) / compute, [0.0 for _ in runs[1:]]


def held_out(runs):
    """The median in place of the list."""
    compute, messages, real = runs[0]
    pace = (real - messages) / compute
    errors = sorted(r / (pace * c + m) - 1 for c, m, r in runs[1:])
    return pace, errors[len(errors) // 2] if errors else 0.0
