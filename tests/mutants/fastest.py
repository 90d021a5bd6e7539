EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the lower bound is the formula's time", "low * seconds", "seconds"),
    ("the upper bound is the formula's time", "high * seconds", "seconds"),
    ("a step that was run still may take as little as its bound", "least[i] = most[i] = run(i)", "most[i] = run(i)"),
    ("every layout is a rival until it was run", "least[i] < most[best]]", "least[i] < most[i]]"),
]


def fastest(formula, run, low, high):
    """By the formula alone."""
    return formula.index(min(formula))


def fastest(formula, run, low, high):
    """Every step is run."""
    times = list(map(run, range(len(formula))))
    return times.index(min(times))


def fastest(formula, run, low, high):
    """All that the formula cannot tell from its first are run, whatever the runs say."""
    near = [i for i, seconds in enumerate(formula) if low * seconds <= high * min(formula)]
    return min(near, key=run)


def fastest(formula, run, low, high):
    """The formula's first three are run."""
    order = sorted(range(len(formula)), key=formula.__getitem__)
    return min(order[:3], key=run)


def fastest(formula, run, low, high):
    """The formula's first, unless the second is within 20 %."""
    order = sorted(range(len(formula)), key=formula.__getitem__)
    near = [i for i in order if formula[i] < 1.2 * formula[order[0]]]
    return order[0] if len(near) == 1 else min(near, key=run)


def fastest(formula, run, low, high):
    """The search stops at the first step that is as fast as the formula says."""
    times = {}
    for i in sorted(range(len(formula)), key=formula.__getitem__):
        times[i] = run(i)
        if times[i] <= formula[i]:
            break
    return min(times, key=times.get)
