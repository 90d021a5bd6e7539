EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("nothing is put off", "i >= stage", "True"),
    ("every stage puts off all W: too many activations", "if i >= stage:", "if False:"),
    ("the W that were put off are forgotten", "range(batches - stage, batches)", "range(0)"),
    ("one W is put off too few", '        order += [("W", i) for i in range(batches - stage, batches)]\n', ""),
    ("every stage runs ahead by all stages", "ahead = stages - stage", "ahead = stages"),
    ("every stage runs ahead by one", "ahead = stages - stage", "ahead = 1"),
    ("W before its I", '("W", i - stage)', '("W", i - stage + 1)'),
]


def zero_bubble(stages, batches):
    """1F1B: W directly after I."""
    orders = []
    for stage in range(stages):
        ahead = stages - stage
        order = [("F", i) for i in range(ahead)]
        for i in range(batches):
            order += [("I", i), ("W", i)]
            if ahead + i < batches:
                order.append(("F", ahead + i))
        orders.append(order)
    return orders


def zero_bubble(stages, batches):
    """GPipe, whose weights come last: fast enough, but it keeps all activations."""
    return [[(kind, i) for kind in "FIW" for i in range(batches)] for _ in range(stages)]


def zero_bubble(stages, batches):
    """The last stage begins with a backward, which waits for its own forward."""
    orders = [[(kind, i) for i in range(batches) for kind in "FIW"] for _ in range(stages)]
    orders[-1][0], orders[-1][1] = orders[-1][1], orders[-1][0]
    return orders


def zero_bubble(stages, batches):
    """The answer for one number of stages."""
    orders = []
    for stage in range(4):
        order = [("F", i) for i in range(4 - stage)]
        for i in range(8):
            order.append(("I", i))
            if i >= stage:
                order.append(("W", i - stage))
            if 4 - stage + i < 8:
                order.append(("F", 4 - stage + i))
        orders.append(order + [("W", i) for i in range(8 - stage, 8)])
    return orders
