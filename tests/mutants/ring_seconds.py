EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("no mask", "(q > k) + (q == k) / 2", "1"),
    ("a piece's own keys take as long as an earlier piece's", "(q == k) / 2", "(q == k)"),
    ("a piece's own keys take no time", " + (q == k) / 2", ""),
    ("the mask hides what came before", "(q > k)", "(q < k) * 2"),
    ("all ranks have the keys of rank s", "held[r - step]", "held[step]"),
    ("nobody waits, and the ranks' times are added", "max(", "sum("),
    ("the quickest rank decides", "max(", "min("),
    ("only the last step counts", "seconds +=", "seconds ="),
    ("nothing is returned", "return seconds", "seconds"),
]


def ring_seconds(held):
    """The busiest rank of the whole ring, not of each step."""
    pieces = [piece for mine in held for piece in mine]
    return max(sum((q > k) + (q == k) / 2 for q in mine for k in pieces) for mine in held)


def ring_seconds(held):
    """The first step, with a rank's own keys, is left out."""
    n, work = len(held), lambda queries, keys: sum(q > k for q in queries for k in keys)
    return sum(max(work(held[r], held[r - s]) for r in range(n)) for s in range(1, n))


def ring_seconds(held):
    """The last rank is taken for the busiest."""
    pieces = [piece for mine in held for piece in mine]
    return sum((q > k) + (q == k) / 2 for q in held[-1] for k in pieces)
