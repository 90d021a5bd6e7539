"""What the processes of the chapter on all-reduce run."""

import time

import torch
import torch.distributed as dist

from d2lmini.distributed.messages import allreduce


def add_up(rank, algorithm, replicas):
    """Return this rank's row of `replicas` after an all-reduce."""
    mine = replicas[rank].clone()
    allreduce(mine, algorithm=algorithm)
    return mine


def seconds(rank, algorithm, n, repeat):
    """Return the seconds of `repeat` all-reduces of n float32, as this rank saw them; "gloo" is torch's own."""
    data = torch.ones(n)
    times = []
    for _ in range(repeat + 2):  # two to warm up
        dist.barrier()
        begin = time.perf_counter()
        if algorithm == "gloo":
            dist.all_reduce(data)
        else:
            allreduce(data, algorithm=algorithm)
        times.append(time.perf_counter() - begin)
        data.fill_(1)
    return times[2:]


def disagree(rank, how):
    """All-reduce with one rank that does something else, as `how` says: "shape", "missing" or "order"."""
    weights, bias = torch.ones(6), torch.ones(2)
    if how == "missing" and rank == 1:
        return
    if how == "shape" and rank == 1:
        weights = torch.ones(5)
    for tensor in (bias, weights) if how == "order" and rank == 1 else (weights, bias):
        allreduce(tensor)
