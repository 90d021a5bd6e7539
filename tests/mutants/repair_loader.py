"""Wrong answers to the lab on a slow loader."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("two workers are too few", "num_workers=4", "num_workers=2"),
    ("more workers than cores take turns", "num_workers=4", "num_workers=24"),
    ("the copies come from pageable memory", ", pin_memory=True", ""),
    ("each loss is read", "losses.append(step(X))", "losses.append(torch.tensor(step(X).item()))"),
    ("the transform stays in the loop", "transform=transform, ", "transform=None, "),
    ("the losses stay on the GPU", "torch.stack(losses).tolist()", "torch.stack(losses)"),
    ("each loss stays on the GPU", "torch.stack(losses).tolist()", "losses"),
    ("every loss is the last one's", "torch.stack(losses).tolist()", "[losses[-1].item()] * len(losses)"),
]


def train(loader, transform, step, device):
    """All is cured but the copies, which are in the stream of the steps."""
    batches = loader(num_workers=4, transform=transform, pin_memory=True)
    return torch.stack([step(X.to(device, non_blocking=True)) for X in batches]).tolist()


def train(loader, transform, step, device):
    """The transform is done by the program itself, between two steps."""
    batches = (transform(X).pin_memory() for X in loader(num_workers=8))
    return torch.stack([step(X) for X in overlap.prefetch(batches, device)]).tolist()


def train(loader, transform, step, device):
    """All batches are loaded before the first step."""
    batches = list(loader(num_workers=8, transform=transform, pin_memory=True))
    return torch.stack([step(X) for X in overlap.prefetch(batches, device)]).tolist()


def train(loader, transform, step, device):
    """The batches come in another order."""
    batches = list(loader(num_workers=8, transform=transform, pin_memory=True))
    return torch.stack([step(X) for X in overlap.prefetch(batches[::-1], device)]).tolist()


def train(loader, transform, step, device):
    """The first batch again and again: nothing is loaded."""
    batches = [next(iter(loader(num_workers=4, transform=transform, pin_memory=True)))] * 40
    return torch.stack([step(X) for X in overlap.prefetch(batches, device)]).tolist()


def train(loader, transform, step, device):
    """The steps do not wait for the second stream."""
    copying, losses = torch.sim.Stream(device), []
    for X in loader(num_workers=4, transform=transform, pin_memory=True):
        with torch.sim.stream(copying):
            X = X.to(device, non_blocking=True)
        losses.append(step(X))
    return torch.stack(losses).tolist()


def train(loader, transform, step, device):
    """The second stream does not wait for the steps, whose memory it gets."""
    copying, losses, before = torch.sim.Stream(device), [], None

    def use(X, arrived):
        torch.sim.current_stream(device).wait_event(arrived)
        losses.append(step(X))

    for X in loader(num_workers=4, transform=transform, pin_memory=True):
        with torch.sim.stream(copying):
            after = X.to(device, non_blocking=True), copying.record_event()
        if before:
            use(*before)
        before = after
    use(*before)
    return torch.stack(losses).tolist()


def train(loader, transform, step, device):
    """Work that nobody needs fills the gaps."""
    losses, W = [], torch.ones(512, 512, device=device)
    for X in loader(num_workers=1):
        losses.append(step(transform(X.to(device))))
        for _ in range(6):
            W @ W
    return torch.stack(losses).tolist()
