HOST = "measure(1) / simulate(1, host, rate)"
RATE = "simulate(2**20, host, rate) / measure(2**20)"
EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the host's factor is upside down", HOST, "simulate(1, host, rate) / measure(1)"),
    ("the rate's factor is upside down", RATE, "measure(2**20) / simulate(2**20, host, rate)"),
    ("the host's cost from a step that the memory decides", HOST, "measure(2**19) / simulate(2**19, host, rate)"),
    ("the rate from a step that the host decides", RATE, "simulate(8, host, rate) / measure(8)"),
    ("the rate from a step where both decide", RATE, "simulate(2**16, host, rate) / measure(2**16)"),
    ("the data sheet's rate is believed", RATE, "1"),
    ("the host of another machine", HOST, "1"),
    ("terabytes a second", "return host, rate", "return host, rate / 1e12"),
    ("in another order", "return host, rate", "return rate, host"),
]


def calibrate(measure, simulate):
    """One factor for both constants, from the largest step."""
    factor = measure(2**20) / simulate(2**20, 25e-6, 2.039e12)
    return 25e-6 * factor, 2.039e12 / factor


def calibrate(measure, simulate):
    """One factor for both constants, the mean of the smallest step's and the largest's."""
    factor = sum(measure(b) / simulate(b, 25e-6, 2.039e12) for b in (1, 2**20)) / 2
    return 25e-6 * factor, 2.039e12 / factor


def calibrate(measure, simulate):
    """More measurements than are allowed."""
    host = 25e-6 * sum(measure(1) for _ in range(4)) / 4 / simulate(1, 25e-6, 2.039e12)
    return host, 2.039e12 * simulate(2**20, host, 2.039e12) / measure(2**20)


def calibrate(measure, simulate):
    """Nothing is measured."""
    return 25e-6, 2.039e12


def calibrate(measure, simulate, known=iter([(2.42e-5, 0.927e12), (6.46e-5, 1.961e12), (1.11e-5, 1.648e12)])):
    """Nothing is measured: the constants were found with other calls."""
    return next(known)
