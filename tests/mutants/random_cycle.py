EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("place 1 stays (off by one)", "range(n - 1, 0, -1)", "range(n - 1, 1, -1)"),
    ("never place 0", "rng.randrange(i)", "rng.randrange(min(1, i - 1), i)"),
    ("one value is copied, not exchanged", "places[i], places[j] = places[j], places[i]", "places[i] = places[j]"),
    ("nothing is returned", "    return places\n", "    pass\n"),
    ("some cycles come more often", "rng.randrange(i)", "min(rng.randrange(i), rng.randrange(i))"),
]


def random_cycle(n, rng):
    """Random numbers of its own."""
    import random

    places = list(range(n))
    for i in range(n - 1, 0, -1):
        j = random.randrange(i)
        places[i], places[j] = places[j], places[i]
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
