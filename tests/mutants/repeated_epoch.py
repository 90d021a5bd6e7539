EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the seed", 'line="C"', 'line="A"'),
    ("the same order in every epoch", "        sampler.set_epoch(epoch)\n", ""),
    ("no shuffling", "DistributedSampler(dataset)", "DistributedSampler(dataset, shuffle=False)"),
    ("every rank believes that it is rank 0", "DistributedSampler(dataset)", "DistributedSampler(dataset, rank=0)"),
    ("fewer examples a step", "batch_size=4", "batch_size=2"),
]


def train(model, dataset, epochs):
    """Each rank takes every n-th batch of an order that the ranks do not share: no seed is set."""
    model, ranks = DDP(model), torch.distributed.get_world_size()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        batches = list(DataLoader(dataset, batch_size=4, shuffle=True))
        for x, y in batches[torch.distributed.get_rank() :: ranks]:
            optimizer.zero_grad()
            (model(x.to("sim")) - y.to("sim")).square().mean().backward()
            optimizer.step()
    return model.module


def train(model, dataset, epochs):
    """Every rank draws its own order, of all examples."""
    torch.manual_seed(torch.distributed.get_rank())
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        for x, y in DataLoader(dataset, batch_size=4, shuffle=True):
            optimizer.zero_grad()
            (model(x.to("sim")) - y.to("sim")).square().mean().backward()
            optimizer.step()
    return model.module


def train(model, dataset, epochs):
    """Every rank draws its own order, and stops when it has read its number."""
    torch.manual_seed(torch.distributed.get_rank())
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(epochs):
        order = torch.randperm(len(dataset))[: len(dataset) // torch.distributed.get_world_size()].tolist()
        for x, y in DataLoader(dataset, batch_size=4, sampler=order):
            optimizer.zero_grad()
            (model(x.to("sim")) - y.to("sim")).square().mean().backward()
            optimizer.step()
    return model.module
