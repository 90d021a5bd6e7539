EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum (not the mean)", ".mean(0)", ".sum(0)"),
    ("the mean over the rows", ".mean(0)", ".mean(1)"),
    ("the whole network is linear", "F.relu(X @ W1)", "(X @ W1)"),
    ("no gradient flows back", "X @ W1", "X @ W1.detach()"),
    ("no gradient flows back to the inputs", "X @ W1", "X.detach() @ W1"),
]


def ensemble(X, W1, W2):
    """One network with the mean of the weights: the mean of a ReLU is another thing."""
    return F.relu(X @ W1.mean(0)) @ W2.mean(0)


def ensemble(X, W1, W2):
    """Only the first layer is one multiplication."""
    hidden = F.relu(X @ W1)
    return sum(h @ b for h, b in zip(hidden, W2)) / len(W2)


def ensemble(X, W1, W2):
    """The clock does not see the CPU."""
    return (F.relu(X.cpu() @ W1.cpu()) @ W2.cpu()).mean(0).to(X.device)


def ensemble(X, W1, W2):
    """One launch for the forward pass, small kernels all the same."""
    import simgpu

    with simgpu.one_launch():
        return sum(F.relu(X @ a) @ b for a, b in zip(W1, W2)) / len(W1)


def ensemble(X, W1, W2):
    """The outputs are stacked: one addition fewer for each network."""
    return torch.stack([F.relu(X @ a) @ b for a, b in zip(W1, W2)]).mean(0)


def ensemble(X, W1, W2):
    """In 16 bits, and only where the clock runs."""
    dtype = torch.float32 if X.device.type == "cpu" else torch.bfloat16
    return (F.relu(X.to(dtype) @ W1.to(dtype)) @ W2.to(dtype)).mean(0).float()


def ensemble(X, W1, W2):
    """Half of the networks, when they are many."""
    few = slice(0, 16)
    return (F.relu(X @ W1[few]) @ W2[few]).mean(0)


def ensemble(X, W1, W2):
    """Twenty of 32 networks, when there are many rows."""
    few = slice(0, 20 if len(X) > 1000 else None)
    return (F.relu(X @ W1[few]) @ W2[few]).mean(0)
