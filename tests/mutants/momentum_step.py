EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("beta weighs the gradient", "torch.add(g, m, alpha=beta", "torch.add(m, g, alpha=beta"),
    ("uphill", "alpha=-lr", "alpha=lr"),
    ("the momentum is not kept", ", out=m)", ")"),
    ("the old momentum moves the weights", "w.add_(m", "w.add_(m - g"),
]


def momentum_step(w, m, g, lr, beta):
    """New tensors, which nobody else holds."""
    m = torch.add(g, m, alpha=beta)
    w = torch.add(w, m, alpha=-lr)
    return w, m


def momentum_step(w, m, g, lr, beta):
    """In place, with one kernel too many."""
    m.mul_(beta).add_(g)
    w.add_(m, alpha=-lr)


def momentum_step(w, m, g, lr, beta):
    """Half the bytes by half the digits, and the conversions are kernels too."""
    m.copy_(torch.add(g.half(), m.half(), alpha=beta))
    w.copy_(torch.add(w.half(), m.half(), alpha=-lr))


def momentum_step(w, m, g, lr, beta):
    """On the host, where no kernel runs."""
    weights, momentum = w.cpu(), m.cpu()
    momentum.mul_(beta).add_(g.cpu())
    m.copy_(momentum)
    w.copy_(weights.add_(momentum, alpha=-lr))


def momentum_step(w, m, g, lr, beta):
    """The tensors are given other memory."""
    m.data = torch.add(g, m, alpha=beta)
    w.data = torch.add(w, m, alpha=-lr)


def momentum_step(w, m, g, lr, beta):
    """The gradient is used up."""
    torch.add(g, m, alpha=beta, out=m)
    w.add_(g.copy_(m), alpha=-lr)


def momentum_step(w, m, g, lr, beta):
    """A mean that lerp makes in one kernel: (1 - beta) × g is not g."""
    m.lerp_(g, 1 - beta)
    w.add_(m, alpha=-lr)
