EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("what just fits is refused", "<= memory", "< memory"),
    ("gradients are divided from level 1 on", "(2, 2)", "(2, 1)"),
    ("the state is divided at level 2 only", "(12, 1)", "(12, 2)"),
    ("Adam without a 32-bit copy", "(12, 1)", "(8, 1)"),
    ("32-bit gradients", "(2, 2)", "(4, 2)"),
    ("level 3 whether it fits or not", 'raise ValueError("level 3 does not fit either")', "return 3"),
    ("the highest level that fits", "range(4)", "reversed(range(4))"),
]


def lowest_level(parameters, replicas, memory):
    """All is divided at every level."""
    if 16 * parameters <= memory:
        return 0
    if 16 * parameters / replicas <= memory:
        return 1
    raise ValueError("does not fit")
