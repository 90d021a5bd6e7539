"""Wrong answers to the exercise split-loss, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("no largest score is subtracted", "(part - largest).exp()", "part.exp()"),
    ("each part has its own largest score", "(part - largest).exp()", "(part - part.amax(1, True)).exp()"),
    ("the largest score is forgotten in the end", "largest[:, 0] + total.log()", "total.log()"),
    ("the target is looked up as if all parts began at word 0", "local = targets - first", "local = targets"),
    ("a target at the end of a part is missed", "(local < part.shape[1])", "(local < part.shape[1] - 1)"),
    ("words before a part count as its own", "(local >= 0) & ", ""),
    ("the parts' first words are not counted on", "first += part.shape[1]", "first = part.shape[1]"),
    ("the sum in place of the mean", ".mean()", ".sum()"),
    ("the sign is turned", "- wanted", "+ wanted"),
    ("nothing is returned", "return (", "("),
]


def split_loss(parts, targets):
    """All scores are put together."""
    return torch.nn.functional.cross_entropy(torch.cat(parts, 1), targets)


def split_loss(parts, targets):
    """The mean of the parts' own losses."""
    losses, first = [], 0
    for part in parts:
        local = (targets - first).clamp(0, part.shape[1] - 1)
        losses.append(torch.nn.functional.cross_entropy(part, local))
        first += part.shape[1]
    return torch.stack(losses).mean()


def split_loss(parts, targets):
    """Only examples whose target is in the first part."""
    mine = targets < parts[0].shape[1]
    return torch.nn.functional.cross_entropy(parts[0][mine], targets[mine])
