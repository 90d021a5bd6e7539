EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a step does not wait for its stage", "max(free[stage], ends[needs] if", "(ends[needs] if"),
    ("a step does not wait for what it needs", "max(free[stage], ends[needs] if needs else 0)", "free[stage]"),
    ("the last stage's backward needs nothing", 'needs = (stage, "F", i)', "needs = None"),
    ("backward comes from the stage before", '(stage + 1, "B", i)', '(stage - 1, "B", i)'),
    ("a schedule that is stuck ends where it is", "raise ValueError", "return max(free) or ValueError"),
    (
        "forward and backward change their times",
        'forward if way == "F" else backward',
        'backward if way == "F" else forward',
    ),
    ("the first stage's end", "return max(free)", "return free[-1]"),
]


def pipeline_seconds(orders, forward, backward):
    """The formula without the schedule."""
    batches = len(orders[0]) // 2
    return (batches + len(orders) - 1) * (forward + backward)


def pipeline_seconds(orders, forward, backward):
    """The formula of a full pipeline, whatever the schedule."""
    if orders[0][0][0] == "B":
        raise ValueError("stuck")
    batches = len({i for order in orders for _, i in order})
    return (batches + len(orders) - 1) * (forward + backward)
