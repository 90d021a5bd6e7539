EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("stage 2 keeps whole gradients between micro-batches", "2: batches + 1", "2: 2"),
    ("stage 2 also gathers for every micro-batch", "2: batches + 1", "2: 2 * batches"),
    ("stage 3 gathers once a micro-batch", "3 * batches", "2 * batches"),
    ("stage 3 does not count micro-batches", "3 * batches", "3"),
    ("plain replicas sum every micro-batch", "0: 2", "0: 2 * batches"),
    ("each number has 32 bits", "half = 2 *", "half = 4 *"),
    ("the bytes of all ranks", "(ranks - 1) / ranks", "(ranks - 1)"),
]


def zero_bytes(parameters, ranks, stage, batches):
    """Stage 1 sends half of what an all-reduce sends."""
    half = 2 * parameters * (ranks - 1) / ranks
    return half * [2, 1, batches, 3 * batches][stage]
