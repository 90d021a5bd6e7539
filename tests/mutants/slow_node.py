EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the other node of the slow pair", "return first if", "return second if"),
    ("the node that is left over is not tested", "if nodes % 2 and", "if False and"),
    ("it is blamed where none is slow", "return -1", "return last"),
    (
        "a threshold that noise crosses",
        "for p, r in zip(pairs, test(pairs)) if r < 0.8",
        "for p, r in zip(pairs, test(pairs)) if r < 0.93",
    ),
    (
        "a bad cable is overlooked",
        "for p, r in zip(pairs, test(pairs)) if r < 0.8",
        "for p, r in zip(pairs, test(pairs)) if r < 0.5",
    ),
    ("the good node is one of the pair", "good = 2 if first == 0 else 0", "good = 0"),
    ("each node in two pairs at once", "range(0, nodes - 1, 2)", "range(0, nodes - 1)"),
]


def slow_node(nodes, test):
    """Half of the nodes against the other half, then halves again: right, but more than two tests."""
    suspects = list(range(nodes))
    good = []
    while len(suspects) > 1:
        half = len(suspects) // 2
        pairs = list(zip(suspects[:half], suspects[half:]))
        slow = [pair for pair, rate in zip(pairs, test(pairs)) if rate < 160]
        if slow:
            good = [i for i in range(nodes) if i not in slow[0]]
            suspects = [slow[0][0]] if test([(slow[0][0], good[0])])[0] < 160 else [slow[0][1]]
            return suspects[0]
        suspects = suspects[2 * half :]
    return suspects[0] if suspects and test([(suspects[0], 0)])[0] < 160 and test([(suspects[0], 1)])[0] < 160 else -1


def slow_node(nodes, test):
    """The node of the slowest pair with the lower number."""
    pairs = [(i, i + 1) for i in range(0, nodes - 1, 2)]
    rates = test(pairs)
    return pairs[rates.index(min(rates))][0]
