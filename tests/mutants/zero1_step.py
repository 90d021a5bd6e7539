EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the sum of the gradients, not their mean", ", op=dist.ReduceOp.AVG)", ")"),
    ("the parameters are not gathered", "    dist.all_gather(list(flat.chunk(n)), shard.detach())\n", ""),
    ("gathered before the update", "    optimizer.step()\n", ""),
    ("another rank's part of the gradient", "list(gradient.chunk(n))", "list(gradient.roll(1).chunk(n))"),
    ("the gathered parameters go into new memory", "list(flat.chunk(n)), shard", "list(flat.clone().chunk(n)), shard"),
]


def zero1_step(flat, gradient, shard, optimizer):
    """A whole all-reduce, of which the rank uses its part."""
    n = dist.get_world_size()
    dist.all_reduce(gradient, op=dist.ReduceOp.AVG)
    shard.grad = gradient.chunk(n)[dist.get_rank()].clone()
    optimizer.step()
    dist.all_gather(list(flat.chunk(n)), shard.detach())


def zero1_step(flat, gradient, shard, optimizer):
    """Every rank updates by its own gradient."""
    n = dist.get_world_size()
    shard.grad = gradient.chunk(n)[dist.get_rank()].clone()
    optimizer.step()
    dist.all_gather(list(flat.chunk(n)), shard.detach())


def zero1_step(flat, gradient, shard, optimizer):
    """The gradients are averaged twice."""
    n = dist.get_world_size()
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter(shard.grad, list((gradient / n).chunk(n)), op=dist.ReduceOp.AVG)
    optimizer.step()
    dist.all_gather(list(flat.chunk(n)), shard.detach())


def zero1_step(flat, gradient, shard, optimizer):
    """The gradients of earlier steps add up in the shard's."""
    n = dist.get_world_size()
    mean = torch.empty_like(shard)
    dist.reduce_scatter(mean, list(gradient.chunk(n)), op=dist.ReduceOp.AVG)
    shard.grad = mean if shard.grad is None else shard.grad + mean
    optimizer.step()
    dist.all_gather(list(flat.chunk(n)), shard.detach())


def zero1_step(flat, gradient, shard, optimizer):
    """The parameters are averaged over the ranks instead of gathered."""
    n = dist.get_world_size()
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter(shard.grad, list(gradient.chunk(n)), op=dist.ReduceOp.AVG)
    optimizer.step()
    flat.chunk(n)[dist.get_rank()].copy_(shard.detach())
    dist.all_reduce(flat, op=dist.ReduceOp.AVG)


def zero1_step(flat, gradient, shard, optimizer):
    """Only rank 0 takes part in the gathering."""
    n = dist.get_world_size()
    shard.grad = torch.empty_like(shard)
    dist.reduce_scatter(shard.grad, list(gradient.chunk(n)), op=dist.ReduceOp.AVG)
    optimizer.step()
    if dist.get_rank() == 0:
        dist.all_gather(list(flat.chunk(n)), shard.detach())


def zero1_step(flat, gradient, shard, optimizer):
    """Half of the bytes, for half of the digits."""
    n = dist.get_world_size()
    mean = torch.empty_like(shard, dtype=torch.float32)
    dist.reduce_scatter(mean, list(gradient.float().chunk(n)), op=dist.ReduceOp.AVG)
    shard.grad = mean.double()
    optimizer.step()
    dist.all_gather(list(flat.chunk(n)), shard.detach())
