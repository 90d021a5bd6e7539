EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("every rank's examples are taken for the same", "x, mesh, [Shard(0), Replicate()]", "x, mesh, [Replicate()] * 2"),
    ("y is whole along its columns", "[Shard(0), Shard(1)]", "[Shard(0), Replicate()]"),
    ("w is a sum over the data's ranks", "[Replicate(), Shard(1)]", "[torch.distributed.tensor.Partial(), Shard(1)]"),
    ("the gradient stays a sum that nobody added up", ".redistribute(placements=w.placements)", ""),
    ("a gathered w comes back", ".to_local()", ".full_tensor()"),
    ("a DTensor comes back", ".to_local()", ""),
    ("the sum of squares, not their mean", ".mean()", ".sum()"),
]


def mesh_step(x, y, w, mesh):
    """The axes of the mesh are swapped in all three."""
    x = DTensor.from_local(x, mesh, [Replicate(), Shard(0)])
    y = DTensor.from_local(y, mesh, [Shard(1), Shard(0)])
    w = DTensor.from_local(w, mesh, [Shard(1), Replicate()])
    w.requires_grad_()
    loss = ((x @ w - y) ** 2).mean()
    (gradient,) = torch.autograd.grad(loss, w)
    gradient = gradient.redistribute(placements=w.placements)
    return (w - 0.1 * gradient).to_local()


def mesh_step(x, y, w, mesh):
    """The gradient of the own part is averaged over all ranks, also over those with other columns."""
    w.requires_grad_()
    (gradient,) = torch.autograd.grad(((x @ w - y) ** 2).mean(), w)
    torch.distributed.all_reduce(gradient)
    return w - 0.1 * gradient / mesh.size()


def mesh_step(x, y, w, mesh):
    """All examples are gathered, so that no gradient has to be: more bytes with more examples."""
    x = DTensor.from_local(x, mesh, [Shard(0), Replicate()]).full_tensor()
    y = DTensor.from_local(y, mesh, [Shard(0), Shard(1)]).full_tensor()
    whole = DTensor.from_local(w, mesh, [Replicate(), Shard(1)]).full_tensor()
    gradient = 2 / y.numel() * x.T @ (x @ whole - y)
    column = mesh.get_local_rank("columns")
    return w - 0.1 * gradient.chunk(mesh.size(1), 1)[column]


def mesh_step(x, y, w, mesh):
    """The examples are gathered along "data", so that the gradient needs no sum: more bytes."""
    x = DTensor.from_local(x, mesh, [Shard(0), Replicate()]).redistribute(placements=[Replicate()] * 2)
    y = DTensor.from_local(y, mesh, [Shard(0), Shard(1)]).redistribute(placements=[Replicate(), Shard(1)])
    w = DTensor.from_local(w, mesh, [Replicate(), Shard(1)]).requires_grad_()
    (gradient,) = torch.autograd.grad(((x @ w - y) ** 2).mean(), w)
    return (w - 0.1 * gradient).to_local()
