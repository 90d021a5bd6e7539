"""Wrong answers to the exercise on two buffers."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("as many buffers as batches", "max(copied, free)", "copied"),
    ("a single buffer", "ends[i - 2] if i >= 2 else 0", "ends[i - 1] if i >= 1 else 0"),
    ("three buffers", "ends[i - 2] if i >= 2 else 0", "ends[i - 3] if i >= 3 else 0"),
    ("the work does not wait for its copy", "max(copied, ends[-1] if ends else 0)", "(ends[-1] if ends else copied)"),
    ("works overlap each other", "max(copied, ends[-1] if ends else 0)", "copied"),
    ("the longest work's end is not the last's", "return ends[-1]", "return copied + works[-1]"),
]


def two_buffers(copies, works):
    """The formula for equal times."""
    longer = [max(pair) for pair in zip(copies, works)]
    return sum(longer) + min(copies[0], works[-1])
