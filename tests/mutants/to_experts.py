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
    n = dist.get_world_size()
    counts = [torch.zeros_like(chosen[:1].sum()) for _ in range(n)]
    dist.all_gather(counts, torch.full_like(counts[0], len(x)))
    counts = [int(count) for count in counts]
    everything = parallel.AllToAll.apply(x.repeat(n, 1), [len(x)] * n, counts)
    experts = parallel.AllToAll.apply(chosen.repeat(n), [len(x)] * n, counts)
    return everything[experts == dist.get_rank()]


def to_experts(x, chosen):
    """Half of the bytes, for half of the digits."""
    order = chosen.argsort(stable=True)
    sent = chosen.bincount(minlength=dist.get_world_size())
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    return parallel.AllToAll.apply(x[order].half(), sent.tolist(), received.tolist()).float()


def to_experts(x, chosen):
    """Every part is filled up to the size of the largest."""
    n, most = dist.get_world_size(), torch.tensor(len(x), device="sim")
    dist.all_reduce(most, op=dist.ReduceOp.MAX)
    sent = chosen.bincount(minlength=n)
    received = torch.empty_like(sent)
    dist.all_to_all_single(received, sent)
    rows = [torch.cat([x[chosen == e], x.new_zeros(int(most - sent[e]), x.shape[1])]) for e in range(n)]
    came = parallel.AllToAll.apply(torch.stack(rows))
    return torch.cat([part[: int(count)] for part, count in zip(came, received)])
