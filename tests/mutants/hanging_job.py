EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the line where the others wait", 'line="C"', 'line="D"'),
    ("a step is taken when one rank can take it", "op=dist.ReduceOp.MIN", "op=dist.ReduceOp.MAX"),
    ("the first bad batch ends the training", "            continue", "            break"),
    ("the flag is on the CPU, which NCCL refuses", "loss.isfinite().float()", "loss.isfinite().float().cpu()"),
    ("only NaN is left out", "loss.isfinite().float()", "(~loss.isnan()).float()"),
    ("only infinity is left out", "loss.isfinite().float()", "(~loss.isinf()).float()"),
    ("the data are tested, not the loss", "loss.isfinite()", "(x.isfinite().all() & y.isfinite().all())"),
    ("every rank decides by its own loss", "        dist.all_reduce(finite, op=dist.ReduceOp.MIN)\n", ""),
]


def train(model, batches):
    """Every rank takes every step: one infinite loss spoils all weights."""
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        optimizer.step()
    return model.module


def train(model, batches):
    """The rank takes part with a loss of zero, so that the others' step is taken."""
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss = (model(x) - y).square().mean()
        if not loss.isfinite():
            loss = (model(torch.zeros_like(x)) * 0).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.module


def train(model, batches):
    """Ranks wait for each other where one leaves the loop's round, and nowhere else."""
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss = (model(x) - y).square().mean()
        if not loss.isfinite():
            dist.barrier()
            continue
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.module
