"""What ranks do in the tests of `spawn`: another process must be able to import it."""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist


def hello(rank):
    """Print a greeting and return the rank."""
    print(f"rank {rank} of {dist.get_world_size()}")
    return rank


def misbehave(rank, who, how):
    """Join an all-reduce, except for rank `who`, which does one of `ACTS`; "fine" joins, "returns" does not."""
    if rank == who and how == "returns":
        return None
    if rank == who and how != "fine":
        ACTS[how]()
    mine = torch.tensor(rank)
    dist.all_reduce(mine)
    return mine.item()


def _raise():
    raise ValueError("this rank has no data:\n  none")


def _hang():
    print("hangs")
    time.sleep(1000)


ACTS = {
    "leaves": lambda: sys.exit(0),
    "raises": _raise,
    "exits": lambda: os._exit(3),
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": _hang,
    "stops": lambda: os.kill(os.getpid(), signal.SIGSTOP),
}


def returns_a_generator(rank):
    """Return what cannot be sent to another process."""
    return (i for i in range(3))


def settings(rank):
    """Print on both streams; return this process's number, torch's threads, the folder and some variables."""
    print("out", rank)
    os.write(2, b"err %d\n" % rank)
    variables = [os.environ.get(name) for name in ("RANK", "WORLD_SIZE", "D2LMINI_TEST")]
    return os.getpid(), torch.get_num_threads(), os.getcwd(), *variables
