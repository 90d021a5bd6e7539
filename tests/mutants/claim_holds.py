EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the factor is upside down", "s / p for p, s in past", "p / s for p, s in past"),
    ("only the first end of the simulated ratio", "min(simulated)", "simulated[0]"),
    ("the range as seen, which few pairs do not bound", "low, high = low / wider, high * wider", "pass"),
    ("largest and smallest factor swapped", "min(simulated) / max(factors)", "min(simulated) / min(factors)"),
    ("never no", 'return "no"', 'return "open"'),
    ("the claim is forgotten: always compared with 1", "low > least", "low > 1"),
]


def claim_holds(simulated, past, least):
    """The simulated number is believed."""
    return "yes" if simulated[0] > least else "no"


def claim_holds(simulated, past, least):
    """Both ends, but no errors."""
    return "yes" if min(simulated) > least else "no" if max(simulated) < least else "open"


def claim_holds(simulated, past, least):
    """The usual error is divided out, and the spread is forgotten."""
    usual = sorted(s / p for p, s in past)[len(past) // 2]
    low, high = min(simulated) / usual, max(simulated) / usual
    return "yes" if low > least else "no" if high < least else "open"


def claim_holds(simulated, past, least):
    """The largest error with both signs, as if errors had none."""
    worst = max(abs(s / p - 1) for p, s in past)
    low, high = min(simulated) * (1 - worst), max(simulated) * (1 + worst)
    return "yes" if low > least else "no" if high < least else "open"


def claim_holds(simulated, past, least):
    """A factor of two for everything, so that hardly anything can be told."""
    return "yes" if min(simulated) > 2 * least else "no" if max(simulated) < least / 2 else "open"


def claim_holds(simulated, past, least):
    """Nothing is told."""
    return "open"


def claim_holds(simulated, past, least):
    """One margin for every kind, whatever its earlier pairs say."""
    low, high = min(simulated) / 1.38, max(simulated) * 1.38
    return "yes" if low > least else "no" if high < least else "open"


def claim_holds(simulated, past, least):
    """A wide margin for every kind."""
    low, high = min(simulated) / 1.7, max(simulated) * 1.7
    return "yes" if low > least else "no" if high < least else "open"


def claim_holds(simulated, past, least):
    """The bias is divided out, and the spread is ignored."""
    factors = sorted(s / p for p, s in past)
    middle = factors[len(factors) // 2]
    low, high = min(simulated) / middle / 1.3, max(simulated) / middle * 1.3
    return "yes" if low > least else "no" if high < least else "open"
