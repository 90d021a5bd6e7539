"""What each rank does in the tests of `distributed`: many checks in one run, for a process costs more than a check.

Every function raises where a check fails; the run then names the rank.
"""

import itertools
from pathlib import Path

import torch
import torch.distributed as dist

from d2lmini.collectives import schedules
from d2lmini.distributed import SharedAllreduce, agreement, allreduce, execute, messages, segment

LENGTHS = (0, 1, 2, 3, 5, 17, 64, 1001)
DTYPES = (torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int64)
OPS = {"sum": dist.ReduceOp.SUM, "product": dist.ReduceOp.PRODUCT, "min": dist.ReduceOp.MIN, "max": dist.ReduceOp.MAX}


def betraying(n, rank):
    """Return a vector whose sum tells which ranks are in it, how often, and whether its elements are in place."""
    return 10**rank * (1 + 10_000 * torch.arange(n, dtype=torch.int64))


def oracle(tensor, op="sum"):
    """Return gloo's own all-reduce."""
    result = tensor.contiguous().clone()
    if result.numel():
        dist.all_reduce(result, OPS[op])
    return result


def same_everywhere(tensor):
    """Raise unless all ranks hold the same bits."""
    everyone = [None] * dist.get_world_size()
    dist.all_gather_object(everyone, tensor.flatten().view(torch.uint8).tolist())
    assert all(bits == everyone[0] for bits in everyone)


def check(reduce, tensor, op="sum"):
    wanted, before = oracle(tensor, op), tensor.clone()
    result = reduce(tensor, op)
    assert result is tensor
    assert torch.equal(result, wanted), f"{op} of {before}: expected {wanted}, got {result}"


def types_ops_and_views(reduce):
    """Check every type and op, means, and tensors that are not contiguous."""
    rank, size = dist.get_rank(), dist.get_world_size()
    for dtype, op in itertools.product(DTYPES, OPS):
        small = torch.arange(37) % 3 + 1 + rank % 2  # products of 4 ranks stay exact in 16 bits
        check(reduce, small.to(dtype), op)
    for dtype in DTYPES[:-1]:
        values = torch.arange(37) % 5 * size
        mean = reduce((values + rank).to(dtype), "mean")
        assert torch.equal(mean, (values + (size - 1) / 2).to(dtype)), mean
    square = betraying(60, rank).view(6, 10)
    check(reduce, square.clone().T[1:, ::2])
    check(reduce, square.clone()[:, 3])
    check(reduce, torch.tensor(5 + rank))


def by_messages(rank, segments):
    """All schedules for all-reduce, of all lengths, cut into segments of several sizes."""
    for segment_bytes, algorithm in itertools.product(segments, schedules.ALLREDUCE):
        messages.SEGMENT = segment_bytes
        messages.SMALL = 0 if segment_bytes == segments[0] else messages.SMALL
        for n in LENGTHS:
            check(lambda x, op: allreduce(x, op, algorithm), betraying(n, rank))  # noqa: B023
        types_ops_and_views(lambda x, op: allreduce(x, op, algorithm))  # noqa: B023
        same_everywhere(allreduce(torch.rand(1001), "sum", algorithm))


def schedules_of_all_kinds(rank, tensors, segment_bytes):
    """Run every collective on this rank's of `tensors`; return the results by name."""
    messages.SEGMENT, messages.SMALL = segment_bytes, 0
    return {schedule.name: execute(schedule, tensors[rank].clone()) for schedule in every_schedule(len(tensors))}


def every_schedule(size):
    """Return a schedule of every kind for so many ranks."""
    makers = [*schedules.ALLREDUCE.values(), schedules.all_gather, schedules.reduce_scatter]
    makers += [schedules.broadcast, schedules.reduce, schedules.gather, schedules.scatter]
    return [make(size) for make in makers] + [exchange(size)] + ([heedless(size)] if size > 2 else [])


def exchange(size):
    """Return a schedule in which neighbours swap what each is overwriting: all sends read what was there before."""
    pairs = [(rank, rank ^ 1) for rank in range(size) if rank ^ 1 < size]
    swap = tuple(schedules.Send(a, b, 0, 1, "copy") for a, b in pairs)
    add = tuple(schedules.Send(a, b, 0, 1, "reduce") for a, b in pairs)
    return schedules.Schedule("exchange", size, 1, (swap, add, swap))


def heedless(size):
    """Return a schedule whose senders wait for nobody: what rank 0 receives may come before it has sent or added."""
    moves = [(0, 1, "copy"), (2, 0, "copy"), (1, 0, "reduce"), (2, 0, "copy"), (0, 1, "copy"), (2, 0, "reduce")]
    steps = tuple((schedules.Send(src, dst, 0, 1, op),) for src, dst, op in moves)
    return schedules.Schedule("heedless", size, 1, steps)


def through_memory(rank, block):
    """The same checks in shared memory, with blocks so short that a tensor needs many, and in the buffer."""
    shared = SharedAllreduce(1001, torch.int64, block=block)
    for n in LENGTHS:
        check(shared.allreduce, betraying(n, rank))
    types_ops_and_views(shared.allreduce)
    same_everywhere(shared.allreduce(torch.rand(1001)))
    for turn in range(3):
        wanted = oracle(betraying(1001, rank) + turn)
        shared.buffer.copy_(betraying(1001, rank) + turn)
        assert torch.equal(shared.allreduce(shared.buffer), wanted)
        check(shared.allreduce, betraying(1001, rank))
    return [len(shared.buffer), len(SharedAllreduce().buffer), sum("d2lmini" in name for name in names())]


def names():
    """Return what stands where a shared segment could be left behind."""
    return [path.name for folder in ("/dev/shm", "/tmp") for path in Path(folder).glob("d2lmini-*") if path.is_file()]


def without_order(rank):
    """Shared memory as on a processor that reorders: gloo's barriers in place of the counters."""
    segment.ORDERED = False
    through_memory(rank, 256)


def refused(rank):
    """Return what is said of arguments that cannot be reduced; nothing is sent."""
    said = []
    for reduce in (allreduce, SharedAllreduce().allreduce):
        for tensor, op in ((torch.ones(2), "sums"), (torch.ones(2).long(), "mean"), (torch.ones(2).to("meta"), "sum")):
            said.append(message(lambda: reduce(tensor, op)))  # noqa: B023
    said.append(message(lambda: execute(schedules.allreduce_ring(3), torch.ones(2))))
    said.append(message(lambda: allreduce(torch.ones(2), algorithm="star")))
    return said


def message(call):
    """Return what a call raises as ValueError."""
    try:
        call()
    except ValueError as error:
        return str(error)
    raise AssertionError("nothing was raised")


def forget(rank):
    """Another order at the third call, of kinds that were all checked before: the tags still tell them apart."""
    agreement.PATIENCE_S = 1.0
    a, b = torch.ones(3), torch.ones(4)
    for tensor in (a, b):
        allreduce(tensor)
    allreduce(b if rank else a, timeout=2)


def other_roots(rank, known):
    """Broadcast from a root that differs from rank to rank; known: both were used before, so none is compared."""
    for root in (0, 1) if known else ():
        execute(schedules.broadcast(2, root), torch.ones(3))
    execute(schedules.broadcast(2, root=rank), torch.ones(3), timeout=2.0 if known else 100.0)
