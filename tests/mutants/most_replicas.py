EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the bubble as a share of the work", "/ (m + stages - 1)", "/ m"),
    ("as many idle places as stages", "(stages - 1) / (m + stages - 1)", "stages / (m + stages)"),
    ("a bubble of exactly idle is refused", "<= idle", "< idle"),
    ("replicas with unequal numbers of micro-batches", "rest == 0 and ", ""),
    ("the fewest replicas", "range(batch // size, 0, -1)", "range(1, batch // size + 1)"),
    ("a micro-batch is one sequence", "size * replicas", "replicas"),
    ("one replica where none fits", "return 0", "return 1"),
    ("two replicas at least", "0, -1", "1, -1"),
]


def most_replicas(batch, size, stages, idle):
    """As many micro-batches as there can be, whatever the batch: the bubble is forgotten."""
    total, rest = divmod(batch, size)
    return 0 if rest else total
