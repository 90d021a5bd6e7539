"""Wrong answers to the exercise random-cycle, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a place may stay: a permutation that falls apart", "rng.randrange(i)", "rng.randrange(i + 1)"),
    ("the last place stays (off by one)", "range(n - 1, 0, -1)", "range(n - 2, 0, -1)"),
    ("place 1 stays (off by one)", "range(n - 1, 0, -1)", "range(n - 1, 1, -1)"),
    ("never place 0", "rng.randrange(i)", "rng.randrange(min(1, i - 1), i)"),
    ("always the neighbour: as they lie", "rng.randrange(i)", "i - 1"),
    ("always the same cycle", "rng.randrange(i)", "__import__('random').Random(i).randrange(i)"),
    ("nothing is drawn", "rng.randrange(i)", "0"),
    ("one value is copied, not exchanged", "places[i], places[j] = places[j], places[i]", "places[i] = places[j]"),
    ("the last place is dropped", "return places", "return places[:-1]"),
    ("nothing is returned", "    return places\n", "    pass\n"),
    ("places count from 1", "list(range(n))", "list(range(1, n + 1))"),
    ("some cycles come more often", "rng.randrange(i)", "min(rng.randrange(i), rng.randrange(i))"),
]


def random_cycle(n, rng):
    """The order of visits in place of the successors."""
    visit = list(range(n))
    rng.shuffle(visit)
    return visit


def random_cycle(n, rng):
    """Drawn again until no place stays: still several cycles."""
    places = list(range(n))
    while n > 1 and any(i == place for i, place in enumerate(places)):
        rng.shuffle(places)
    return places


def random_cycle(n, rng):
    """Every place exchanged with any: some orders of visits come more often."""
    visit = list(range(n))
    for i in range(n):
        j = rng.randrange(n)
        visit[i], visit[j] = visit[j], visit[i]
    places = [0] * n
    for here, there in zip(visit, visit[1:] + visit[:1]):
        places[here] = there
    return places


def random_cycle(n, rng):
    """Random numbers of its own."""
    import random
    places = list(range(n))
    for i in range(n - 1, 0, -1):
        j = random.randrange(i)
        places[i], places[j] = places[j], places[i]
    return places
