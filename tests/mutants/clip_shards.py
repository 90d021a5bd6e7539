EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the norm of the rank's own shards", "    dist.all_reduce(squares)\n", ""),
    ("no root", "norm = squares.sqrt()", "norm = squares"),
    ("the mean over the ranks", "dist.all_reduce(squares)", "dist.all_reduce(squares, op=dist.ReduceOp.AVG)"),
    ("the largest rank's", "dist.all_reduce(squares)", "dist.all_reduce(squares, op=dist.ReduceOp.MAX)"),
    (
        "scaled up as well",
        "    if norm > limit:\n        for g in gradients:\n            g *= limit / norm",
        "    for g in gradients:\n        g *= limit / norm",
    ),
    ("new tensors, not in place", "            g *= limit / norm", "            g = g * limit / norm"),
    ("the norm after clipping", "return norm", "return min(norm, torch.tensor(limit))"),
]


def clip_shards(gradients, limit):
    """A rank without shards does not take part."""
    if not gradients:
        return 0.0
    squares = sum(g.square().sum() for g in gradients)
    dist.all_reduce(squares)
    norm = squares.sqrt()
    for g in gradients:
        g *= min(1.0, limit / (norm.item() + 1e-6))
    return norm


def clip_shards(gradients, limit):
    """The norms are added, not their squares."""
    norm = torch.zeros(1, device="sim", dtype=torch.float64)
    for g in gradients:
        norm += g.norm()
    dist.all_reduce(norm)
    for g in gradients:
        g *= min(1.0, limit / (norm.item() + 1e-6))
    return norm.item()


def clip_shards(gradients, limit):
    """Every number of every gradient is gathered on all ranks."""
    padded = torch.zeros(50, device="sim", dtype=torch.float64)  # of which no rank has more
    flat = torch.cat([*gradients, padded])[:50]
    parts = [torch.empty_like(flat) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, flat)
    norm = torch.cat(parts).norm().item()
    for g in gradients:
        g *= min(1.0, limit / (norm + 1e-6))
    return norm


def clip_shards(gradients, limit):
    """Each shard is clipped by its own norm."""
    squares = torch.zeros((), device="sim", dtype=torch.float64)
    for g in gradients:
        squares += g.square().sum()
        g *= min(1.0, limit / (g.norm().item() + 1e-6))
    dist.all_reduce(squares)
    return squares.sqrt()
