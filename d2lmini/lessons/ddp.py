"""What the chapters' processes do with PyTorch's DistributedDataParallel: a process cannot import from a notebook.

Each function is run with `distributed.run` as ``run(function, world_size, …)``: its first argument is the rank.
"""

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

from d2lmini.models.lenet import LeNet


def batch(n, step=0):
    """Return the same random images [n, 1, 28, 28] and labels [n] in every process; float64, to show mistakes alone."""
    generator = torch.Generator().manual_seed(step)
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
    return X, torch.randint(10, (n,), generator=generator)


def train(rank, steps, n, lr, bucket_mb=None):
    """Take SGD steps with DDP, each rank on its part of n images; return parameters, and a step's buckets in order.

    n: divisible by the number of ranks, since DDP averages the ranks' gradients with equal weights. bucket_mb: the
    most MiB in a bucket, None for DDP's 25. A bucket is told by the shapes of the gradients that it holds.
    """
    world_size, seen = dist.get_world_size(), []
    model = DistributedDataParallel(LeNet().double(), bucket_cap_mb=bucket_mb)
    model.register_comm_hook(seen, _mean_and_note)
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for step in range(steps):
        X, y = (part.chunk(world_size)[rank] for part in batch(n, step))
        seen.clear()
        optimizer.zero_grad()
        cross_entropy(model(X), y).backward()  # every gradient is the mean over the ranks when this returns
        optimizer.step()
    return [p.detach() for p in model.parameters()], seen


def train_alone(steps, n, lr):
    """Do in this process, on the whole batch, what `train` does over ranks; return the parameters."""
    model = LeNet().double()
    optimizer = torch.optim.SGD(model.parameters(), lr)
    for step in range(steps):
        X, y = batch(n, step)
        optimizer.zero_grad()
        cross_entropy(model(X), y).backward()
        optimizer.step()
    return [p.detach() for p in model.parameters()]


def _mean_and_note(seen, bucket):
    """DDP calls this for each bucket that is full, in place of its own all-reduce."""
    seen.append([list(p.shape) for p in bucket.gradients()])
    mean = bucket.buffer().div_(dist.get_world_size())
    return dist.all_reduce(mean, async_op=True).get_future().then(lambda future: future.value()[0])
