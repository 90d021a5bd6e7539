"""Wrong answers that checks.rate_ends must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("host and GPU one after the other", "max(gpu, operations * cost)", "(gpu + operations * cost)"),
    ("the host alone", "max(gpu, operations * cost)", "(operations * cost)"),
    ("the GPU alone", "max(gpu, operations * cost)", "gpu"),
    ("the other way round", "(high, low)", "(low, high)"),
    ("steps, not examples", "batch /", "1 /"),
    ("the faster of the two decides", "max(gpu", "min(gpu"),
    ("the host pays for each example", "operations * cost", "batch * operations * cost"),
]
