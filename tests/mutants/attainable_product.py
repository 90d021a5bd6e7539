"""Wrong answers to the exercise attainable-product, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("a multiplication and an addition count as one", "2 * m * k * n", "m * k * n"),
    ("the result is not written", "m * k + k * n + m * n", "m * k + k * n"),
    ("an operand is not read", "m * k + k * n + m * n", "m * k + m * n"),
    ("the result is read too", "m * k + k * n + m * n", "m * k + k * n + 2 * m * n"),
    ("numbers of 4 bytes always", "itemsize *", "4 *"),
    ("elements in place of bytes", "itemsize *", "1 *"),
    ("the higher roof", "min(", "max("),
    ("the intensity upside down", "flops / nbytes", "nbytes / flops"),
    ("always limited by arithmetic", "min(flops_per_s, ", "max(0, flops_per_s or "),
    ("always limited by memory", "min(flops_per_s, ", "max(0, "),
    ("every operand is read once an element", "m * k + k * n + m * n", "2 * m * k * n + m * n"),
    ("nothing is returned", "return min", "min"),
]
