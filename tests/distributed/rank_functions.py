"""What ranks do in the tests of `spawn`: another process must be able to import it."""

import os
import signal
import sys
import time
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.distributed import SharedAllreduce, messages


def hello(rank):
    """Print a greeting and return the rank."""
    print(f"rank {rank} of {dist.get_world_size()}")
    return rank


def total(rank, values):
    """Return the sum over the ranks of each rank's entry of `values`, by gloo's own all-reduce."""
    mine = torch.tensor(values[rank])
    dist.all_reduce(mine)
    return mine.item()


def misbehave(rank, who, how):
    """Join an all-reduce, except for rank `who`, which does one of `ACTS`; "fine" joins, "returns" does not."""
    if rank == who and how == "returns":
        return None
    if rank == who and how != "fine":
        ACTS[how]()
    return total(rank, list(range(dist.get_world_size())))


def _raise():
    raise ValueError("this rank has no data:\n  none")


def _hang():
    time.sleep(1000)


ACTS = {
    "leaves": lambda: sys.exit(0),
    "raises": _raise,
    "exits": lambda: os._exit(3),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": _hang,
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def returns(rank, what):
    """Return what a name stands for: a tensor, or something that cannot be pickled."""
    return torch.full((3,), rank) if what == "tensor" else (i for i in range(3))


def settings(rank):
    """Print on both streams; return this process's number, torch's threads, the folder and some variables."""
    print("out", rank)
    os.write(2, b"err %d\n" % rank)
    variables = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "D2LMINI_TEST")]
    return os.getpid(), torch.get_num_threads(), os.getcwd(), *variables


def execute(rank, schedule, tensors, op="sum"):
    """Run a schedule on this rank's of `tensors`, one a rank, by messages; return the result."""
    return messages.execute(schedule, tensors[rank], op)


def shared(rank, tensors, op="sum"):
    """All-reduce this rank's of `tensors`, one a rank, through shared memory; return the result."""
    return SharedAllreduce().allreduce(tensors[rank], op)


def disagree(rank, how, way="messages", timeout=5.0):
    """All-reduce twice, except that the last rank does otherwise, as `how` says; return the second result.

    how: "fine", "another shape", "another type", "another order", "missing". way: "messages", "shared" or "gloo".
    """
    reduce, first, second = WAYS[way](timeout), torch.ones(4), torch.ones(2, 3)
    if rank == dist.get_world_size() - 1:
        if how == "missing":
            return None
        first = {"another shape": torch.ones(5), "another type": torch.ones(4).double()}.get(how, first)
        if how == "another order":
            first, second = second, first
    reduce(first)
    return reduce(second)


def _gloo(tensor):
    dist.all_reduce(tensor)
    return tensor


WAYS = {
    "messages": lambda timeout: partial(messages.allreduce, timeout=timeout),
    "shared": lambda timeout: SharedAllreduce(timeout=timeout).allreduce,
    "gloo": lambda timeout: _gloo,
}
