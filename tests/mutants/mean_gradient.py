EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("shards are not weighted", "size * gradient", "gradient"),
    ("the sum is not divided", "total / sum(shard_sizes)", "total"),
    ("the sum is divided by the number of shards", "/ sum(shard_sizes)", "/ len(shard_sizes)"),
    ("the sum starts in the first gradient (aliased)", "torch.zeros_like(shard_gradients[0])", "shard_gradients[0]"),
    ("single precision only", "torch.zeros_like(shard_gradients[0])", "torch.zeros(shard_gradients[0].shape)"),
]


def mean_gradient(shard_gradients, shard_sizes):
    """A single shard's gradient is passed on as it is (aliased)."""
    if len(shard_gradients) == 1:
        return shard_gradients[0]
    return sum(g * n for g, n in zip(shard_gradients, shard_sizes)) / sum(shard_sizes)
