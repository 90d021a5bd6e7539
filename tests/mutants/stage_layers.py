EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the logits are not counted", "split[-1] + logits", "split[-1]"),
    (
        "the first stage, and not the last, has the logits",
        "[*split[:-1], split[-1] + logits]",
        "[split[0] + logits, *split[1:]]",
    ),
    ("the logits' backward pass is counted twice", "+ logits", "+ 3 * logits"),
    ("the first layers are forgotten", "[1] * stages", "[0] * stages"),
    ("more for whom has most", "min(work)", "max(work)"),
]


def stage_layers(layers, stages, logits):
    """Equal parts."""
    return [layers // stages + (i < layers % stages) for i in range(stages)]


def stage_layers(layers, stages, logits):
    """One layer fewer at the end, whatever the logits take."""
    split = [layers // stages + (i < layers % stages) for i in range(stages)]
    if split[-1] > 1:
        split[-1] -= 1
        split[0] += 1
    return split


def stage_layers(layers, stages, logits):
    """All that the last stage gives away goes to the first."""
    split = [layers // stages + (i < layers % stages) for i in range(stages)]
    away = min(int(logits), split[-1] - 1)
    return [split[0] + away, *split[1:-1], split[-1] - away] if stages > 1 else split


def stage_layers(layers, stages, logits):
    """The shares are rounded, and no longer add up."""
    each = (layers + logits) / stages
    return [round(each)] * (stages - 1) + [max(1, round(each - logits))]


def stage_layers(layers, stages, logits):
    """Every number of layers at the end is fine."""
    return [1] * (stages - 1) + [layers - stages + 1]
