EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum (not the mean)", "total / len(gradients)", "total"),
    ("short gradients are made longer", ".clamp(max=1)", ""),
    ("the last norm (not the largest)", "torch.stack(norms).max().item()", "norms[-1].item()"),
    ("the norm stays on the GPU", ".max().item()", ".max()"),
    ("the norm is NumPy's", ".max().item()", ".max().cpu().numpy()[()]"),
    ("each norm is read", "norms.append(norm)", "norms.append(torch.tensor(norm.item()))"),
]


def clipped_mean(gradients, limit):
    """Python's max compares two tensors, and waits for the answer."""
    total, largest = torch.zeros_like(gradients[0]), torch.zeros((), device=gradients[0].device)
    for g in gradients:
        norm = g.norm()
        total += g * (limit / norm).clamp(max=1)
        largest = max(largest, norm)
    return total / len(gradients), largest.item()


def clipped_mean(gradients, limit):
    """The log waits no longer, and the condition still does."""
    total, norms = torch.zeros_like(gradients[0]), []
    for g in gradients:
        norms.append(g.norm())
        if norms[-1] > limit:
            g = g * (limit / norms[-1])
        total += g
    return total / len(gradients), torch.stack(norms).max().item()


def clipped_mean(gradients, limit):
    """On the host, where nobody waits for a GPU."""
    host = [g.cpu() for g in gradients]
    norms = [g.norm().item() for g in host]
    total = sum(g * min(1, limit / norm) for g, norm in zip(host, norms))
    return (total / len(host)).to(gradients[0].device), max(norms)


def clipped_mean(gradients, limit):
    """Work that nobody needs keeps the GPU busy while the host reads."""
    total, largest = torch.zeros_like(gradients[0]), 0.0
    for g in gradients:
        norm = g.norm()
        for _ in range(8):
            g + g
        largest = max(largest, norm.item())
        total += g * min(1, limit / norm.item())
    return total / len(gradients), largest


def clipped_mean(gradients, limit):
    """The mean is clipped, not each gradient."""
    norms = torch.stack([g.norm() for g in gradients])
    mean = sum(gradients) / len(gradients)
    return mean * (limit / mean.norm()).clamp(max=1), norms.max().item()


def clipped_mean(gradients, limit):
    """The gradients are scaled in place: the caller still needs them."""
    norms = [g.norm() for g in gradients]
    for g, norm in zip(gradients, norms):
        g.mul_((limit / norm).clamp(max=1))
    return sum(gradients) / len(gradients), torch.stack(norms).max().item()
