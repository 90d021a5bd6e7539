EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum (not the mean)", "/ n", "/ 1"),
    ("no gradient flows back", "loss.to(", "loss.detach().to("),
    ("the mean of a shard is taken for its sum", 'reduction="sum"', 'reduction="mean"'),
]


def parallel_loss(replicas, X_shards, y_shards):
    """Of long rows of logits only the first 200 are compared."""
    first = X_shards[0].device
    shards = zip(replicas, X_shards, y_shards)
    total = sum(F.cross_entropy(r(X)[:, :200], y, reduction="sum").to(first) for r, X, y in shards)
    return total / sum(map(len, y_shards))


def parallel_loss(replicas, X_shards, y_shards):
    """The mean of the shards' means."""
    first = X_shards[0].device
    shards = zip(replicas, X_shards, y_shards)
    losses = [F.cross_entropy(r(X), y).to(first) for r, X, y in shards]
    return sum(losses) / len(losses)


def parallel_loss(replicas, X_shards, y_shards):
    """The logits are gathered on the last GPU in place of the first."""
    last = X_shards[-1].device
    logits = torch.cat([r(X).to(last) for r, X in zip(replicas, X_shards)])
    y = torch.cat([y.to(last) for y in y_shards])
    return F.cross_entropy(logits, y).to(X_shards[0].device)


def parallel_loss(replicas, X_shards, y_shards):
    """One replica does all the work."""
    first = X_shards[0].device
    X, y = (torch.cat([t.to(first) for t in shards]) for shards in (X_shards, y_shards))
    return F.cross_entropy(replicas[0](X), y)


def parallel_loss(replicas, X_shards, y_shards):
    """A number of Python, from which nothing flows back."""
    shards = zip(replicas, X_shards, y_shards)
    total = sum(F.cross_entropy(r(X), y, reduction="sum").item() for r, X, y in shards)
    return torch.tensor(total / sum(map(len, y_shards)), device=X_shards[0].device)
