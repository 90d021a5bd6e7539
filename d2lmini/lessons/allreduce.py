"""What the processes of the chapter on all-reduce run."""

import time
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.distributed import Messages


def add_up(rank, algorithms, replicas):
    """Return what an all-reduce makes of this rank's row of `replicas`, by algorithm."""
    messages = Messages()
    return {algorithm: messages.allreduce(replicas[rank].clone(), algorithm=algorithm) for algorithm in algorithms}


def seconds(rank, algorithms, sizes, repeat):
    """Return the seconds of `repeat` all-reduces of n float32, as this rank saw them, by (algorithm, n).

    Args:
        algorithms: Names in `schedules.ALLREDUCE`, or "gloo", torch's own.
    """
    messages = Messages()
    ways = {name: partial(messages.allreduce, algorithm=name) for name in algorithms if name != "gloo"}
    ways["gloo"] = dist.all_reduce
    data, times = {n: torch.zeros(n) for n in sizes}, {(name, n): [] for name in algorithms for n in sizes}
    for _ in range(repeat + 2):  # two to warm up; in turns, so that what else the machine does falls on all alike
        for name, n in times:
            dist.barrier()
            begin = time.perf_counter()
            ways[name](data[n])
            times[name, n].append(time.perf_counter() - begin)
    return {key: found[2:] for key, found in times.items()}
