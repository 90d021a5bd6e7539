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
    (
        "a list in a list is left alone",
        "[move(item, device) for",
        "[item if isinstance(batch, list) and isinstance(item, list) else move(item, device) for",
    ),
    (
        "what stands in a named tuple goes one level deep",
        "batch._make(items)",
        "batch._make([i.to(device) if isinstance(i, torch.Tensor) else i for i in batch])",
    ),
    (
        "an empty container is dropped",
        "device) for item in batch]",
        "device) for item in batch if not isinstance(item, tuple) or item]",
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


def move(batch, device, deep=0):
    """Two levels, and no more."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if deep > 1 or not isinstance(batch, (dict, list, tuple)):
        return batch
    if isinstance(batch, dict):
        return {key: move(value, device, deep + 1) for key, value in batch.items()}
    items = [move(item, device, deep + 1) for item in batch]
    return batch._make(items) if hasattr(batch, "_make") else type(batch)(items)


def move(batch, device, outside=True):
    """A named tuple inside something else becomes an ordinary one."""
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {key: move(value, device, False) for key, value in batch.items()}
    if isinstance(batch, list):
        return [move(item, device, False) for item in batch]
    if isinstance(batch, tuple):
        items = tuple(move(item, device, False) for item in batch)
        return batch._make(items) if outside and hasattr(batch, "_make") else items
    return batch
