EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the ranks' own mean", "    dist.all_reduce(both)\n", ""),
    ("the sum", "both[0] / both[1]", "both[0]"),
    ("divided by the number of ranks", "both[0] / both[1]", "both[0] / dist.get_world_size()"),
    ("nothing is returned", "return both", "both"),
    ("a whole number", "both[0] / both[1]", "both[0] // both[1]"),
]


def joined_mean(values):
    """A rank without values skips the collective."""
    if len(values) == 0:
        return torch.tensor(0.0)
    both = torch.stack([values.sum(), torch.full_like(values.sum(), len(values))])
    dist.all_reduce(both)
    return both[0] / both[1]


def joined_mean(values):
    """The mean of the ranks' means."""
    mean = values.mean() if len(values) else values.sum()
    dist.all_reduce(mean)
    return mean / dist.get_world_size()
