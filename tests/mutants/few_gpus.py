EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the largest step, whether or not it is needed", "images > 256 and ", "images < 256 and "),
    ("one GPU more each time: three are not offered", "gpus *= 2", "gpus += 1"),
    ("a step too small", ">= target", ">= 0.8 * target"),
    ("larger steps than allowed decide on the GPUs", "rate_of(gpus, most)", "rate_of(gpus, 2 * most)"),
]


def few_gpus(rate_of, target, most):
    """All the GPUs that there are."""
    return 8, most


def few_gpus(rate_of, target, most):
    """So many GPUs as one GPU's best rate goes into the target."""
    gpus = 1
    while gpus * rate_of(1, most) < target:
        gpus *= 2
    return gpus, most


def few_gpus(rate_of, target, most):
    """The answers of the lab's text and messages, without a run."""
    return {500_000: (1, 1024), 1_000_000: (2, 2048), 1_280_000: (4, 2048)}.get(target, (1, 1024))


def few_gpus(rate_of, target, most):
    """The rate is taken to grow in proportion to the images."""
    gpus, images = 1, most
    while (rate := rate_of(gpus, most)) < target:
        gpus *= 2
    while images > 256 and rate * images / 2 / most >= 0.6 * target:
        images //= 2
    return gpus, images
