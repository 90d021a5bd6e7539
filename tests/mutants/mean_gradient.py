"""Wrong answers to the exercise mean-gradient, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("shards are not weighted", "size * gradient", "gradient"),
    ("the sum is not divided", "total / sum(shard_sizes)", "total"),
    ("the sum is divided by the number of shards", "/ sum(shard_sizes)", "/ len(shard_sizes)"),
    ("the number of examples is off by one", "/ sum(shard_sizes)", "/ (sum(shard_sizes) - 1)"),
    ("the last shard is dropped", "zip(shard_gradients, shard_sizes)", "zip(shard_gradients[:-1], shard_sizes)"),
    ("the first shard counts twice", "torch.zeros_like(shard_gradients[0])", "shard_gradients[0].clone()"),
    ("the sum starts in the first gradient (aliased)", "torch.zeros_like(shard_gradients[0])", "shard_gradients[0]"),
    ("the sum starts at one", "zeros_like", "ones_like"),
    ("sizes are in reverse", "zip(shard_gradients, shard_sizes)", "zip(shard_gradients, shard_sizes[::-1])"),
    ("the first shard's gradient is used throughout (stale)", "size * gradient", "size * shard_gradients[0]"),
    ("division drops what is behind the point", "total / sum(", "total // sum("),
    ("single precision only", "torch.zeros_like(shard_gradients[0])", "torch.zeros(shard_gradients[0].shape)"),
    ("nothing is returned", "return total / sum(shard_sizes)", "total / sum(shard_sizes)"),
    ("a list in place of a tensor", "return total / sum(shard_sizes)", "return (total / sum(shard_sizes)).tolist()"),
    ("the sizes are used up", "/ sum(shard_sizes)", "/ sum(shard_sizes.pop() for _ in list(shard_sizes))"),
]


def mean_gradient(shard_gradients, shard_sizes):
    """The gradients are scaled where they are."""
    for gradient, size in zip(shard_gradients, shard_sizes):
        gradient *= size / sum(shard_sizes)
    return sum(shard_gradients)


def mean_gradient(shard_gradients, shard_sizes):
    """A single shard's gradient is passed on as it is (aliased)."""
    if len(shard_gradients) == 1:
        return shard_gradients[0]
    return sum(g * n for g, n in zip(shard_gradients, shard_sizes)) / sum(shard_sizes)


def mean_gradient(shard_gradients, shard_sizes):
    """All numbers of a gradient are averaged too."""
    return sum(g.mean() * n for g, n in zip(shard_gradients, shard_sizes)) / sum(shard_sizes)
