EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("states of 70B that do not fit", '"level": 1', '"level": 0'),
    ("a negative share of recomputation", "data=2, tensor=2", "data=2, recomputed=-1, tensor=2"),
    ("context ranks are not counted as GPUs", "data=4, tensor=2, context=8", "data=32, tensor=2, context=8"),
    ("one micro-batch in eight stages", '"batches": 128', '"batches": 1, "batch": 128'),
    ("half of the batch", "batches=2, **hybrid", "batches=1, **hybrid"),
    ("hybrid sharding over three replicas", '"shards": 4', '"shards": 3'),
    ("hybrid sharding without ZeRO-3", '"level": 3', '"level": 2'),
    ("one micro-batch: a pipeline that waits", "batches=32", "batch=32"),
    ("as many experts on every GPU, no ZeRO", "expert=8, batches=32", "batches=32"),
    ("expert ranks on two nodes", "expert=8", "expert=16"),
    ("a model is missing", '"long": ', '"8B": '),
]


def choose_layouts():
    """The same layout for all: replicas alone."""
    return dict.fromkeys(("70B", "long", "8x7B"), Layout(data=64, batch=4, level=3, recomputed=1))


def choose_layouts():
    """Gradients of 16 bits, to save memory: not what is trained."""
    layouts = {
        "70B": Layout(data=4, tensor=4, pipeline=4, batches=64, gradient=2),
        "long": Layout(data=4, tensor=4, context=4, batches=2, sequence=True, gradient=2),
        "8x7B": Layout(data=8, tensor=2, pipeline=4, expert=4, batches=32, level=1, gradient=2),
    }
    return layouts


def choose_layouts():
    """As the tensor ranks of a whole node: nothing is left to compute with."""
    return {
        "70B": Layout(data=8, tensor=8, batches=32, level=1, sequence=True, recomputed=1),
        "long": Layout(data=4, tensor=8, context=2, batches=2, level=1, sequence=True),
        "8x7B": Layout(data=8, tensor=8, batches=32, level=1, sequence=True),
    }
