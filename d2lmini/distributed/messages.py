"""Schedules between processes: every rank runs its own part with `torch.distributed`'s isend and irecv.

    rank r's buffer   │ chunk 0 │ chunk 1 │ chunk 2 │ …      sent from where it lies
                            ▲ add        ▲ lands here ("copy")
    scratch           │ room 0 │ room 1 │ …                  what is to be added lands here; the rooms are used in turn

A rank sends what `program` says and no more: in the ring 2(P − 1)/P · n elements, in 2(P − 1) messages of n/P, each cut
into segments of at most SEGMENT bytes. The order in which it does so comes from `plan`, once for every kind of call.

The numbers are those of `collectives`: the same schedule adds the same pairs, and a + b is b + a to the bit.
"""

from datetime import timedelta
from functools import lru_cache

import torch
import torch.distributed as dist

from d2lmini.collectives.schedules import ALLREDUCE
from d2lmini.distributed.agreement import Call, group_timeout, must_agree, whom_it_lacks
from d2lmini.distributed.plan import ASK, SEND, WAIT, plan

SEGMENT = 4 * 1024 * 1024  # bytes; a message costs both processors some 50 µs, so short ones lose more than they win
SMALL = 64 * 1024  # bytes up to which asking early is worth one more copy
SCRATCH = 16 * 1024 * 1024  # bytes that all plans share, a call at a time; a segment may fill half of them
COMBINE = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}


def allreduce(tensor, op="sum", algorithm="ring", **options):
    """Replace `tensor` on every rank by the sum (product, min, max, mean) over all ranks; return it.

    algorithm: a name in `schedules.ALLREDUCE`. options: as of `execute`.
    """
    if algorithm not in ALLREDUCE:
        raise ValueError(f"unknown algorithm {algorithm!r}: choose one of {', '.join(ALLREDUCE)}")
    return execute(_schedule(algorithm, dist.get_world_size()), tensor, op, **options)


@lru_cache(maxsize=64)
def _schedule(algorithm, world_size):
    return ALLREDUCE[algorithm](world_size)


def execute(schedule, tensor, op="sum", timeout=None, check=None):
    """Run this rank's part of `schedule` on `tensor`, a CPU tensor, in place; return it. Every rank must call this.

    op: sum, product, min, max, or mean (of a floating-point type): the sum divided by the number of ranks.
    timeout: seconds that a message may take, by default the group's own. check: compare with the other ranks first
    that all are about to do the same; by default the first time that this process runs this schedule on this shape,
    type and op.

    Raises ValueError for a tensor, op or schedule that cannot be run and where the ranks disagree, TimeoutError naming
    the rank waited for, ConnectionError when it has gone.
    """
    timeout = timeout or group_timeout()
    call = Call.next(schedule.name, tensor, op, schedule.mark)
    must_be_possible(call, tensor)
    if schedule.world_size != call.world_size:
        raise ValueError(f"the schedule is for {schedule.world_size} ranks, and there are {call.world_size}")
    must_agree(call, timeout, check)
    data = tensor.detach()  # autograd does not see what is done to it
    flat = data.contiguous().view(-1)  # a copy if the tensor is not contiguous
    size = tensor.element_size()
    todo = plan(schedule, call.rank, flat.numel(), SEGMENT // size, SMALL // size, SCRATCH // size)
    perform(todo, flat, _rooms(todo, tensor.dtype), COMBINE[call.combine], call, timeout)
    if op == "mean":
        flat.div_(schedule.world_size)
    if flat.data_ptr() != data.data_ptr():
        data.copy_(flat.view_as(data))
    return tensor


def must_be_possible(call, tensor):
    """Raise ValueError for an op that is unknown or not for this type, and for a tensor on a device."""
    if call.combine not in COMBINE:
        raise ValueError(f"unknown op {call.op!r}: choose one of {', '.join(COMBINE)}, mean")
    if call.op == "mean" and not tensor.is_floating_point():
        raise ValueError(f"a mean needs a floating-point type, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise ValueError(f"processes exchange CPU tensors, got one on {tensor.device}")


def perform(plan, flat, rooms, combine, call, timeout):
    """Carry out a plan: send from `flat`, and receive into it and into `rooms`."""
    limit, works = timedelta(seconds=timeout), [None] * plan.transfers
    places = [flat[first:last] for first, last in plan.places] + rooms
    for what, move, transfer, here, landed in plan.orders:
        if what == ASK:
            works[transfer] = dist.irecv(places[here], move.peer, tag=call.tag(move.number))
        elif what == SEND:
            data = places[here].clone() if move.buffered else places[here]
            works[transfer] = dist.isend(data, move.peer, tag=call.tag(move.number))
        elif what == WAIT:
            try:
                works[transfer].wait(limit)
            except RuntimeError as error:
                raise whom_it_lacks(call, move, timeout, error) from error
        elif move.op == "reduce":
            combine(places[here], places[landed], out=places[here])
        else:
            places[here].copy_(places[landed])


@lru_cache(maxsize=1024)
def _rooms(plan, dtype):
    """Return the rooms of a plan as tensors of this process's scratch, whose memory is kept: fresh pages cost time."""
    scratch = _scratch.view(dtype)
    return [scratch[first:last] for first, last in plan.rooms]


_scratch = torch.empty(SCRATCH, dtype=torch.uint8)  # the system gives it memory where it is first written
