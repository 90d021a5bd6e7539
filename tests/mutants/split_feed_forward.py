EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the gradient of x is one rank's term", "    x = parallel.CopyToRanks.apply(x, None)\n", ""),
    ("the result is one rank's term", "parallel.SumOverRanks.apply(silu(x @ a) @ b, None)", "silu(x @ a) @ b"),
    ("the two functions are swapped at the end", "parallel.SumOverRanks", "parallel.CopyToRanks  "),
    ("the two functions are swapped at the start", "parallel.CopyToRanks", "parallel.SumOverRanks  "),
    (
        "the mean of the terms",
        "silu(x @ a) @ b, None)",
        "silu(x @ a) @ b, None) / parallel.tensor_parallel.dist.get_world_size()",
    ),
    ("the function of a sum", "silu(x @ a) @ b", "silu(x @ a @ b)"),
]


def feed_forward(x, a, b):
    """All-reduce in place: autograd does not see it."""
    import torch.distributed as dist

    y = silu(x @ a) @ b
    dist.all_reduce(y.data)
    return y


def feed_forward(x, a, b):
    """The weights are gathered, and every rank computes all."""
    import torch
    import torch.distributed as dist

    n = dist.get_world_size()
    A = parallel.AllToAll.apply(torch.cat([a.t()] * n)).t()
    return silu(x @ A) @ parallel.AllToAll.apply(torch.cat([b] * n))


def feed_forward(x, a, b):
    """Half of the bytes, for half of the digits."""
    x = parallel.CopyToRanks.apply(x, None)
    return parallel.SumOverRanks.apply((silu(x @ a) @ b).half(), None).float()


def feed_forward(x, a, b):
    """A result that no gradient can flow back from."""
    x = parallel.CopyToRanks.apply(x, None)
    return parallel.SumOverRanks.apply(silu(x @ a) @ b, None).detach()


def feed_forward(x, a, b):
    """The weights are gathered without their gradients, and every rank computes all."""
    import torch
    import torch.distributed as dist

    A, B = ([torch.empty_like(part) for _ in range(dist.get_world_size())] for part in (a, b))
    dist.all_gather(A, a.detach().contiguous())
    dist.all_gather(B, b.detach().contiguous())
    A[dist.get_rank()], B[dist.get_rank()] = a, b
    return silu(x @ torch.cat(A, 1)) @ torch.cat(B, 0)


def feed_forward(x, a, b):
    """A second all-reduce in forward, of one number."""
    import torch
    import torch.distributed as dist

    x = parallel.CopyToRanks.apply(x, None)
    dist.all_reduce(torch.ones(1, device=x.device))
    return parallel.SumOverRanks.apply(silu(x @ a) @ b, None)
