EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum over the ranks, not the mean", "lr / scale / dist.get_world_size()", "lr / scale"),
    ("added up in float16", "for g in gradients]).float()", "for g in gradients])"),
    (
        "unscaled before the sum, in float16",
        "[g.flatten() for g in gradients]",
        "[g.flatten() / scale for g in gradients]",
    ),
    ("the scale stays in", "lr / scale / dist", "lr / dist"),
    ("the scale is kept after a skipped step", "return scale / 2", "return scale"),
    ("half of a scale of 1 is 0", "return scale / 2", "return scale // 2"),
    ("sent in bfloat16", "dist.all_reduce(flat)", "dist.all_reduce(flat := flat.bfloat16()); flat = flat.float()"),
    (
        "added up exactly, sent back in bfloat16",
        "dist.all_reduce(flat)",
        "dist.all_reduce(flat); flat = flat.bfloat16()",
    ),
    ("parameters are replaced, not moved", "p -= part.view_as(p)", "p.copy_(-part.view_as(p))"),
    ("every step is skipped or none", "if not flat.isfinite().all():", "if flat.isinf().any():"),
]


def skipped_step(parameters, gradients, scale, lr):
    """Each rank decides by its own gradients."""
    flat = torch.cat([g.flatten() for g in gradients]).float()
    finite = flat.isfinite().all()
    dist.all_reduce(flat)
    if not finite:
        return scale / 2
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p -= lr / scale / dist.get_world_size() * part.view_as(p)
    return scale


def skipped_step(parameters, gradients, scale, lr):
    """A rank whose gradients overflow sends none, and the others wait."""
    flat = torch.cat([g.flatten() for g in gradients]).float()
    if not flat.isfinite().all():
        return scale / 2
    dist.all_reduce(flat)
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p -= lr / scale / dist.get_world_size() * part.view_as(p)
    return scale


def skipped_step(parameters, gradients, scale, lr):
    """Gradients that are not finite become zero, and the step is taken."""
    flat = torch.cat([g.flatten() for g in gradients]).float()
    dist.all_reduce(flat)
    finite = flat.isfinite().all()
    flat = flat.nan_to_num(0, 0, 0)
    for p, part in zip(parameters, flat.split([p.numel() for p in parameters])):
        p -= lr / scale / dist.get_world_size() * part.view_as(p)
    return scale if finite else scale / 2


def skipped_step(parameters, gradients, scale, lr):
    """Only the tensors that overflow are left out."""
    halved = False
    for p, g in zip(parameters, gradients):
        g = g.float()
        dist.all_reduce(g)
        if g.isfinite().all():
            p -= lr / scale / dist.get_world_size() * g
        else:
            halved = True
    return scale / 2 if halved else scale


def skipped_step(parameters, gradients, scale, lr):
    """Right, and a message and a test for each parameter."""
    wide = [g.float() for g in gradients]
    for g in wide:
        dist.all_reduce(g)
    if not all(g.isfinite().all() for g in wide):
        return scale / 2
    for p, g in zip(parameters, wide):
        p -= lr / scale / dist.get_world_size() * g
    return scale
