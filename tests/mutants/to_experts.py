EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the tokens are not sorted by expert", "x[order]", "x"),
    ("counts of this rank for those of the others", "received.tolist()", "sent.tolist()"),
    ("experts that nobody here chose are left out", "minlength=dist.get_world_size()", ""),
    ("gradients do not find their way back", "x[order]", "x[order].detach()"),
    ("the last expert's tokens first", "argsort(stable=True)", "argsort(stable=True, descending=True)"),
    ("the counts are not exchanged", "    dist.all_to_all_single(received, sent)\n", "    received.copy_(sent)\n"),
    (
        "tokens are sent by number, not by expert",
        "chosen.argsort(stable=True)",
        "chosen.argsort(stable=True).argsort()",
    ),
]


def to_experts(x, chosen):
    """Equal parts."""
    return parallel.AllToAll.apply(x[chosen.argsort(stable=True)])


def to_experts(x, chosen):
    """torch's own all-to-all, of which autograd knows nothing."""
    order = chosen.argsort(stable=True)
    sent = chosen.bincount(minlength=dist.get_world_size())
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    sent, received = sent.tolist(), received.tolist()
    y = x.new_empty(sum(received), x.shape[1])
    dist.all_to_all_single(y, x[order].detach(), received, sent)
    return y


def to_experts(x, chosen):
    """The tokens that stay on their rank."""
    return x[chosen == dist.get_rank()]


def to_experts(x, chosen):
    """Every token goes to every rank, which takes its own."""
    from torch.distributed.nn.functional import all_gather

    most = torch.tensor(len(x), device=x.device)
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    padded = x.new_zeros(int(most), x.shape[1])
    padded[: len(x)] = x
    experts = chosen.new_full((int(most),), -1)
    experts[: len(x)] = chosen
    y, found = torch.cat(all_gather(padded)), [torch.empty_like(experts) for _ in range(dist.get_world_size())]
    dist.all_gather(found, experts)
    return y[torch.cat(found) == dist.get_rank()]
