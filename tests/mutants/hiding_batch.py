# what is wrong, text in the worked solution, text to put in its place
EDITS = [
    ("rounded down", "math.ceil(", "math.floor("),
    ("rounded to the nearest", "math.ceil(", "round("),
    ("not rounded", "math.ceil(", "("),
    ("a half is added, then rounded to the nearest", "math.ceil(", "round(0.5 + "),
    ("an all-reduce sends the gradients once", "2 * (gpus - 1) / gpus", "(gpus - 1) / gpus"),
    ("every GPU sends all twice", "2 * (gpus - 1) / gpus", "2"),
    ("forward is counted as well", "4 / flops_per_s", "6 / flops_per_s"),
]


def hiding_batch(flops_per_s, bytes_per_s, gpus, gradient_bytes):
    """One more than the whole part."""
    return (gpus > 1) + int((gpus - 1) * gradient_bytes * flops_per_s / (2 * gpus * bytes_per_s))
