EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the parallel share", "stays / (stays + shared)", "shared / (stays + shared)"),
    ("a ratio of the two", "stays / (stays + shared)", "stays / shared"),
    ("of the first time", "stays / (stays + shared)", "stays / seconds[0]"),
    ("a line in the number of threads", "[1 / p for p in threads]", "[p for p in threads]"),
    ("nothing is returned", "return stays", "stays"),
]


def serial_share(threads, seconds):
    """The first time is taken for that of one thread."""
    p, gain = threads[-1], seconds[0] / seconds[-1]
    return (p / gain - 1) / (p - 1)


def serial_share(threads, seconds):
    """A line through the first point and the last."""
    (x, t), (z, u) = (1 / threads[0], seconds[0]), (1 / threads[-1], seconds[-1])
    shared = (t - u) / (x - z)
    return (t - shared * x) / (t - shared * x + shared)
