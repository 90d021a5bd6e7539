"""What simulated ranks run to see how far data parallelism scales: a step of large dense layers, and one all-reduce."""

from itertools import pairwise

import torch
import torch.distributed as dist
from torch.nn import functional as F

import simgpu

WIDTH, LAYERS = 4096, 4
N = LAYERS * 4 * WIDTH**2  # weights


def set_up(machine):
    """Make a machine's GPUs, for tensors with shapes but no numbers."""
    simgpu.enable(machine=machine, accelerator=True, shapes_only=True)


def timed_step(rank, tokens):
    """Return the seconds of forward, backward + all-reduce, update."""
    shapes = [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * (LAYERS // 2)
    options = {"device": "sim", "dtype": torch.bfloat16}
    weights = [torch.empty(s, **options).requires_grad_() for s in shapes]
    works = []
    for weight in weights:  # DDP by hand: each of these fills a bucket
        weight.register_post_accumulate_grad_hook(lambda w: works.append(dist.all_reduce(w.grad, async_op=True)))
    X = torch.empty(tokens, WIDTH, **options).requires_grad_()
    optimizer = torch.optim.SGD(weights, lr=0.1)
    moments = []

    def now():
        torch.sim.synchronize()
        moments.append(simgpu.now())

    dist.barrier()  # all ranks begin together
    now()
    for weight in weights:
        X = F.relu(X @ weight.T)
    now()
    X.sum().backward()
    for work in works:
        work.wait()
    now()
    optimizer.step()
    now()
    return [end - begin for begin, end in pairwise(moments)]


def step_parts(gpus, tokens):
    """Return the longest forward, backward and update of the ranks, in seconds."""
    ranks = simgpu.spawn(timed_step, (tokens,), nprocs=gpus)
    return [max(found) for found in zip(*ranks, strict=True)]


def timed_sum(rank):
    """Return the seconds of an all-reduce of one layer's gradients."""
    data = torch.empty(N // LAYERS, device="sim", dtype=torch.bfloat16)
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    dist.all_reduce(data)
    torch.sim.synchronize()
    return simgpu.now() - begin
