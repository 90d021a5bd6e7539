EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("everything is copied", "batch.to(device)", "batch.to(device, copy=True)"),
    ("a tuple becomes a list", "type(batch)(", "list("),
    ("what stands in a list is left alone", "move(item, device) for item in batch", "item for item in batch"),
    ("what stands in a dict is left alone", "key: move(value, device)", "key: value"),
    (
        "a dict in a list is left alone",
        "[move(item, device) for",
        "[item if isinstance(item, dict) else move(item, device) for",
    ),
    ("the last item is dropped (off by one)", "for item in batch]", "for item in batch[:-1]]"),
    ("a named tuple is made like any other", 'named = hasattr(batch, "_make")', "named = False"),
    ("always the first GPU", "batch.to(device)", "batch.to(device.type)"),
    (
        "a tensor on another GPU stays",
        "return batch.to(device)",
        "return batch if batch.device.type == device.type else batch.to(device)",
    ),
    (
        "memory there, and no numbers",
        "return batch.to(device)",
        "return batch if batch.device == device else torch.zeros_like(batch, device=device)",
    ),
]


def move(batch, device):
    """The first tensor speaks for all."""
    from torch.utils._pytree import tree_leaves, tree_map

    tensors = [leaf for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor)]
    if not tensors or tensors[0].device == device:
        return batch
    return tree_map(lambda leaf: leaf.to(device) if isinstance(leaf, torch.Tensor) else leaf, batch)
