"""Wrong answers to the exercise placed-step, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("on the default device", "device=device, ", ""),
    ("another rate", "lr=0.1", "lr=0.01"),
    ("Adam, whose steps have another length", "torch.optim.SGD", "torch.optim.Adam"),
    ("no step", "    optimizer.step()\n", ""),
    ("two steps", "optimizer.step()", "optimizer.step(), optimizer.step()"),
    ("the optimiser holds a copy", "[weight]", "[weight.detach().clone()]"),
    ("nothing is returned", "return weight", "weight"),
]


def placed_step(values, loss, device):
    """The weight is moved twice, so that the step is taken by a tensor that is not returned."""
    weight = torch.tensor(values, requires_grad=True)
    moved = weight.to(device)
    loss(moved).backward()
    torch.optim.SGD([weight], lr=0.1).step()
    return moved


def placed_step(values, loss, device):
    """The step is taken on the CPU."""
    weight = torch.tensor(values, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loss(weight).backward()
    optimizer.step()
    return weight.to(device)


def placed_step(values, loss, device):
    """The loss is computed on the device, but the gradient goes to the CPU and the step is taken there."""
    weight = torch.tensor(values, requires_grad=True)
    loss(weight.to(device)).backward()
    torch.optim.SGD([weight], lr=0.1).step()
    return weight.to(device)
