EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("no largest logit is subtracted", "(part - largest).exp()", "part.exp()"),
    ("the largest logit is forgotten in the end", "largest[:, 0] + total.log()", "total.log()"),
    ("the sum in place of the mean", ".mean()", ".sum()"),
    ("nothing is returned", "return (", "("),
    ("all ranks have as many tokens", "first += part.shape[1]", "first += parts[0].shape[1]"),
    ("the token before a rank's first one is taken for its own", "local >= 0", "local >= -1"),
]


def split_loss(parts, targets):
    """All logits are put together."""
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
    """The exponentials of the logits themselves are added up."""
    total, wanted, first = 0, 0, 0
    for part in parts:
        total, local = total + part.exp().sum(1), targets - first
        mine = (local >= 0) & (local < part.shape[1])
        wanted = wanted + part.gather(1, local.clamp(0, part.shape[1] - 1)[:, None])[:, 0] * mine
        first += part.shape[1]
    return (total.log() - wanted).mean()


def split_loss(parts, targets):
    """NumPy puts all logits together."""
    logits = torch.from_numpy(__import__("numpy").concatenate(parts, 1))
    return (logits.logsumexp(1) - logits.gather(1, targets[:, None])[:, 0]).mean()


def split_loss(parts, targets):
    """All logits are put together, of one example at a time."""
    rows = [torch.cat([part[i] for part in parts]) for i in range(len(targets))]
    return sum(row.logsumexp(0) - row[target] for row, target in zip(rows, targets)) / len(targets)


def split_loss(parts, targets):
    """NumPy puts all logits together and computes with them."""
    numpy = __import__("numpy")
    logits = numpy.hstack([part.numpy() for part in parts])
    top = logits.max(1, keepdims=True)
    wanted = (logits - top)[range(len(logits)), targets.numpy()]
    return float((numpy.log(numpy.exp(logits - top).sum(1)) - wanted).mean())


def split_loss(parts, targets):
    """One largest logit for all examples: elsewhere all exponentials are zero."""
    largest, total, wanted, first = max(part.max() for part in parts), 0, 0, 0
    for part in parts:
        total, local = total + (part - largest).exp().sum(1), targets - first
        mine = (local >= 0) & (local < part.shape[1])
        wanted = wanted + part.gather(1, local.clamp(0, part.shape[1] - 1)[:, None])[:, 0] * mine
        first += part.shape[1]
    return (largest + total.log() - wanted).mean()


def split_loss(parts, targets):
    """All logits come into one array of NumPy's, part by part."""
    numpy = __import__("numpy")
    logits, first = numpy.empty((len(targets), sum(part.shape[1] for part in parts))), 0
    for part in parts:
        logits[:, first : first + part.shape[1]] = part.numpy()
        first += part.shape[1]
    top = logits.max(1, keepdims=True)
    wanted = (logits - top)[range(len(logits)), targets.numpy()]
    return float((numpy.log(numpy.exp(logits - top).sum(1)) - wanted).mean())


def split_loss(parts, targets):
    """All logits of an example come into one of Python's lists."""
    from math import exp, log

    loss = 0
    for i, target in enumerate(targets.tolist()):
        logits = [logit for part in parts for logit in part[i].tolist()]
        top = max(logits)
        loss += top + log(sum(exp(logit - top) for logit in logits)) - logits[target]
    return loss / len(targets)
