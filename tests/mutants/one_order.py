EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the line that passes on", 'line="C"', 'line="D"'),
    ("rounding is no rank's choice of an order", 'cause="another order"', 'cause="same examples"'),
    ("tensors are put in the wrong places", "(rank - step) % ranks", "(rank - step - 1) % ranks"),
    ("places are numbered from the rank's own", "parts[(rank - step) % ranks]", "parts[step]"),
    ("from the last rank to the first", "return sum(parts)", "return sum(parts[::-1])"),
    ("added with more digits", "return sum(parts)", "return sum(part.double() for part in parts).float()"),
    ("the library adds, in groups", "return sum(parts)", "return torch.stack(parts).sum(0)"),
    ("the library adds, in groups of another kind", "return sum(parts)", "return torch.stack(parts, 1).sum(1)"),
    ("one tensor is missing", "return sum(parts)", "return sum(parts[1:])"),
]


def add_up(tensor):
    """The starter's sums, rounded so that they look equal."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    rank = dist.get_rank()
    total = tensor.clone()
    for step in range(1, len(parts)):
        total += parts[rank - step]
    return (total * 1e4).round() / 1e4


def add_up(tensor):
    """All ranks have rank 0's sum, whose order is that of the ring."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    total = parts[0] + sum(reversed(parts[1:]))
    dist.broadcast(total, 0)
    return total


def add_up(tensor):
    """The library adds, in an order of its own."""
    total = tensor.clone()
    dist.all_reduce(total)
    return total
