"""What ranks do in the tests of `send_receive`: many checks in one run, for a process costs more.

Every function raises where a check fails; the run then names the rank.
"""

import hashlib
import itertools
import time

import torch
import torch.distributed as dist

from d2lmini.collectives import schedules
from d2lmini.distributed import Messages

LENGTHS = (0, 1, 2, 3, 17, 1001, 300_007)  # the last is too long for a socket to hold
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)


def betraying(n, rank):
    """Return a vector whose sum tells which ranks are in it, how often, and whether its elements are in place."""
    return 10**rank * (1 + 10_000 * torch.arange(n, dtype=torch.int64))


def check(reduce, tensor):
    """Compare with gloo's own all-reduce."""
    wanted = tensor.contiguous().clone()
    if wanted.numel():
        dist.all_reduce(wanted)
    result = reduce(tensor)
    assert result is tensor
    assert torch.equal(result, wanted), f"sum of {len(tensor)}: expected {wanted}, got {result}"


def check_all(reduce):
    """Check every length and type, tensors that are not contiguous, and that all ranks get the same bits."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for n in LENGTHS:
        check(reduce, betraying(n, rank))
    for dtype in DTYPES:
        check(reduce, (torch.arange(37) % 3 + 1 + rank % 2).to(dtype))  # the sums stay exact in 16 bits
    for cut in (lambda x: x.T[1:, ::2], lambda x: x[:, 3]):  # neither is contiguous
        check(reduce, cut(betraying(60, rank).view(6, 10)))
    everyone = [None] * size
    dist.all_gather_object(everyone, reduce(torch.rand(1001)).tolist())
    assert all(values == everyone[0] for values in everyone)


def everything(rank, n):
    """Check every algorithm for all-reduce, and a long ring.

    Then run every collective on random numbers, once for each rank that is slow; return by name a list of `digest`s.
    Who is slow asks late for what others send: they must keep it until it has left.
    """
    messages, size, ask = Messages(), dist.get_world_size(), dist.irecv
    for algorithm in schedules.ALLREDUCE:
        check_all(lambda x: messages.allreduce(x, algorithm))  # noqa: B023
    if size == 3:
        check(messages.allreduce, betraying(5_000_001, rank))
    found = {schedule.name: [] for schedule in every_schedule(size)}
    for slow, schedule in itertools.product(range(size), every_schedule(size)):
        dist.irecv = ask if rank != slow else lambda *words, **more: (time.sleep(0.01), ask(*words, **more))[1]
        dist.barrier()
        found[schedule.name].append(digest(messages.execute(schedule, numbers(n, size)[rank])))
    return found


def digest(tensor):
    """Return what tells whether two tensors have the same bits."""
    return hashlib.sha256(tensor.numpy()).hexdigest()


def numbers(n, size):
    """Return a random vector for each rank."""
    return list(torch.randn(size, n, generator=torch.Generator().manual_seed(n)))


def every_schedule(size):
    """Return a schedule of every kind for so many ranks."""
    makers = [*schedules.ALLREDUCE.values(), schedules.all_gather, schedules.reduce_scatter]
    makers += [schedules.broadcast, schedules.reduce, schedules.gather, schedules.scatter]
    return [make(size) for make in makers] + [exchange(size)] + (heedless(size) if size > 2 else [])


def exchange(size):
    """Return a schedule in which neighbours swap what each is overwriting: all sends read what was there before."""
    pairs = [(rank, rank ^ 1) for rank in range(size) if rank ^ 1 < size]
    swap = tuple(schedules.Send(a, b, 0, 1, "copy") for a, b in pairs)
    add = tuple(schedules.Send(a, b, 0, 1, "reduce") for a, b in pairs)
    return schedules.Schedule("exchange", size, 1, (swap, add, swap))


def heedless(size):
    """Return schedules in which what rank 0 receives may come before what it sends has left, or has been added."""
    to, fro, add = (schedules.Send(*who, 0, 1, op) for *who, op in ((0, 1, "copy"), (2, 0, "copy"), (2, 0, "reduce")))
    back = schedules.Send(1, 0, 0, 1, "reduce")
    steps = {
        "at once": [[to, fro]],
        "after": [[to], [fro]],
        "added": [[to], [add]],
        "again": [[to], [fro], [back], [fro], [to], [add]],
    }
    return [schedules.Schedule(name, size, 1, tuple(map(tuple, parts))) for name, parts in steps.items()]


def refused(rank):
    """Return what is said of what cannot be reduced, and where the last rank, or each, does something else."""
    calls = [
        ("allreduce", torch.ones(2).to("meta")),
        ("execute", schedules.allreduce_ring(2), torch.ones(2)),
        ("allreduce", torch.ones(2), "star"),
        ("allreduce", torch.ones(5 if rank == 2 else 4)),
        ("execute", schedules.broadcast(3, root=rank), torch.ones(3)),
    ]
    messages, said = Messages(), []
    for name, *arguments in calls:
        try:
            getattr(messages, name)(*arguments)
        except ValueError as error:
            said.append(str(error))
    return said


def disagree(rank, how, known):
    """All-reduce twice, but the last of three ranks does otherwise: "another order", "missing".

    known: whether all kinds of call were made before, so that they are not compared beforehand.
    """
    calls, reduce = [torch.ones(4), torch.ones(2, 3)], Messages(3.0).allreduce
    for tensor in calls if known else ():
        reduce(tensor)
    if rank == 2:
        calls = [] if how == "missing" else calls[::-1]
    for tensor in calls:
        reduce(tensor)
