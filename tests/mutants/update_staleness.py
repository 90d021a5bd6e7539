EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a worker's own update counts as one that it has not seen", "seen[worker] = i + 1", "seen[worker] = i"),
    ("a worker's first gradient is fresh", "seen.get(worker, 0)", "seen.get(worker, i)"),
    ("nobody fetches again", "        seen[worker] = i + 1\n", ""),
    ("all fetch at each update", "seen[worker] = i + 1", "seen = dict.fromkeys(workers, i + 1)"),
    ("a text", "return stale", "return str(stale)"),
]


def update_staleness(workers):
    """Always the number of other workers."""
    return [len(set(workers)) - 1] * len(workers)


def update_staleness(workers):
    """The number of other workers, once all have come."""
    return [min(i, len(set(workers)) - 1) for i in range(len(workers))]
