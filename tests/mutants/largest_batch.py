EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("gradients are forgotten", '{"sgd": 2, "momentum": 3, "adam": 4}', '{"sgd": 1, "momentum": 2, "adam": 3}'),
    ("Adam has one number", '"adam": 4', '"adam": 3'),
    ("plain SGD has a momentum", '"sgd": 2', '"sgd": 3'),
    ("less than none", "max(0, free // per_image)", "free // per_image"),
    ("a text", "max(0, free // per_image)", "str(max(0, free // per_image))"),
]


def largest_batch(capacity, parameters, per_image, optimizer):
    """One image where anything is left."""
    free = capacity - 4 * {"sgd": 2, "momentum": 3, "adam": 4}[optimizer] * parameters
    return free // per_image if free >= per_image else int(free > 0)
