EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the whole state on every rank", "/ ranks", ""),
    ("no moments", "16 *", "8 *"),
    ("the root has no shards", "(sum(layers) + root)", "sum(layers)"),
    ("the root is left out while layers compute", "+ 3 * root", ""),
    ("the root's gradients are left out", "3 * root", "2 * root"),
    ("the embedding's gradient already there", "3 * root", "4 * root"),
    ("the end of backward is left out", "max(max(computing) + 3 * root, 6 * root)", "max(computing) + 3 * root"),
    ("both at once", "max(max(computing) + 3 * root, 6 * root)", "max(computing) + 6 * root"),
    ("the neighbours are exchanged", "zip(before, layers, after)", "zip(after, layers, before)"),
    ("the first layer's moment", "max(computing)", "computing[0]"),
    ("the last gradient is reduced in 16 bits", "4 * late", "2 * late"),
    ("the layer's gradient is left out", "4 * own", "2 * own"),
]


def fsdp_peak(layers, root, ranks):
    """The bound for equal layers, with the largest in place of all."""
    return 16 * (sum(layers) + root) / ranks + 10 * max(layers) + 3 * root


def fsdp_peak(layers, root, ranks):
    """The largest layer, wherever its neighbours are larger."""
    i = layers.index(max(layers))
    before, after = layers[i - 1] if i else 0, layers[i + 1] if i + 1 < len(layers) else 0
    tensors = 4 * layers[i] + 2 * before + 4 * after
    return 16 * (sum(layers) + root) / ranks + max(tensors + 3 * root, 6 * root)


def fsdp_peak(layers, root, ranks):
    """Python's index -1 takes the last layer for the neighbour of the first."""
    n = len(layers)
    tensors = max(4 * layers[i] + 2 * layers[i - 1] + 4 * layers[(i + 1) % n] for i in range(n))
    return 16 * (sum(layers) + root) / ranks + max(tensors + 3 * root, 6 * root)
