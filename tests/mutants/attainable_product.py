EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a multiplication and an addition count as one", "2 * m * k * n", "m * k * n"),
    ("the result is not written", "m * k + k * n + m * n", "m * k + k * n"),
    ("an operand is not read", "m * k + k * n + m * n", "m * k + m * n"),
    ("always limited by memory", "min(flops_per_s, ", "max(0, "),
    ("nothing is returned", "return min", "min"),
]
