EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the line that every rank runs", 'line="B"', 'line="A"'),
    ("the count is on the CPU, which NCCL refuses", "torch.ones_like(y).sum()])", "torch.ones_like(y).sum()]).cpu()"),
    ("the share of this rank's own examples", "    dist.all_reduce(both)\n", ""),
    ("only rank 0 has the sum", "dist.all_reduce(both)", "dist.reduce(both, 0)"),
]


def evaluate(model, x, y):
    """The mean of the ranks' shares, whose numbers of examples differ."""
    share = (model(x).argmax(1) == y).float().mean()
    dist.all_reduce(share)
    return (share / dist.get_world_size()).item()


def evaluate(model, x, y):
    """The logits still travel, to every rank."""
    logits = model(x).detach()
    logits_of = [torch.empty_like(logits) for _ in range(dist.get_world_size())]
    dist.all_gather(logits_of, logits)
    labels_of = [torch.empty_like(y) for _ in range(dist.get_world_size())]
    dist.all_gather(labels_of, y)
    return (torch.cat(logits_of).argmax(1) == torch.cat(labels_of)).float().mean().item()


def evaluate(model, x, y):
    """The logits travel one after another, and are sent in full."""
    logits, right, count = model(x).detach(), 0, 0
    for rank in range(dist.get_world_size()):
        size = torch.tensor(len(y), device=y.device)
        dist.broadcast(size, rank)
        mine = rank == dist.get_rank()
        theirs = logits.contiguous() if mine else torch.empty(int(size), logits.shape[1], device=y.device)
        labels = y if mine else torch.empty(int(size), dtype=y.dtype, device=y.device)
        dist.broadcast(theirs, rank)
        dist.broadcast(labels, rank)
        right, count = right + int((theirs.argmax(1) == labels).sum()), count + int(size)
    return right / count
