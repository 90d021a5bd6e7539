EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("all stop when one rank's loss is below", "op=dist.ReduceOp.AVG", "op=dist.ReduceOp.MIN"),
    ("all stop when every rank's loss is below", "op=dist.ReduceOp.AVG", "op=dist.ReduceOp.MAX"),
    ("the sum of the losses", ", op=dist.ReduceOp.AVG", ""),
    ("a rank skips its own broken batch", "if mean.isfinite()", "if loss.isfinite()"),
    ("an infinite loss counts as fine", "if mean.isfinite()", "if not mean.isnan()"),
    ("NaN counts as fine", "if mean.isfinite()", "if not mean.isinf()"),
    ("a rank stops by its own loss", "if mean < limit", "if loss < limit"),
    ("no rank stops", "            break", "            pass"),
    ("a broken batch ends the training", "if mean < limit", "if not mean >= limit"),
    (
        "nobody communicates: each rank trains alone",
        "model, updates = DistributedDataParallel(net)",
        "model, updates = net",
    ),
]


def fit(net, batches, limit):
    """The starter: every rank decides by itself."""
    model, updates = DistributedDataParallel(net), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        loss = F.mse_loss(model(X), y)
        if loss < limit:
            break
        if loss.isfinite():
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
    return updates


def fit(net, batches, limit):
    """A rank skips its own broken batch before it takes part in the mean of the losses."""
    model, updates = DistributedDataParallel(net), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        loss = F.mse_loss(model(X), y)
        if not loss.isfinite():
            continue
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if mean < limit:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    return updates


def fit(net, batches, limit):
    """A rank whose batch is broken takes part with gradients of zero: the others' updates are not left out."""
    model, updates = DistributedDataParallel(net), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        loss = F.mse_loss(model(X), y).nan_to_num()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if mean < limit:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    return updates


def fit(net, batches, limit):
    """The data are tested, not the loss."""
    model, updates = DistributedDataParallel(net), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        fine = (X.isfinite().all() & y.isfinite().all()).float()
        dist.all_reduce(fine, op=dist.ReduceOp.MIN)
        if not fine:
            continue
        loss = F.mse_loss(model(X), y)
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        if mean < limit:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    return updates


def fit(net, batches, limit):
    """Rank 0 decides for all, by its own loss."""
    model, updates = DistributedDataParallel(net), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for X, y in batches:
        loss = F.mse_loss(model(X), y)
        told = loss.detach().clone()
        dist.broadcast(told, src=0)
        if told < limit:
            break
        if told.isfinite():
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            updates += 1
    return updates
