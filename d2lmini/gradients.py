"""Gradients of several replicas: made equal by an allreduce, a bucket at a time, then clipped.

    replica 0:  g0 g1 g2 │ g3 …      one bucket is one long tensor, so one allreduce, however many gradients it holds;
    replica 1:  g0 g1 g2 │ g3 …      the gradients become views of it, so that nothing is copied back
                bucket 0 │ bucket 1
"""

from functools import partial

import torch

from d2lmini import collectives, data_parallel
from d2lmini.buckets import plan
from d2lmini.schedules import ALLREDUCE


def summing(algorithm, devices):
    """Return the function that sums tensors, one on each of `devices`, in place.

    algorithm: a name in `schedules.ALLREDUCE`; a function, which is returned; or None for a ring or, where devices are
    of several kinds or one of them holds two replicas, for sending all through the first. Raises ValueError for others.
    """
    if callable(algorithm):
        return algorithm
    if algorithm is None:
        alike = len({d.type for d in devices}) == 1 and (devices[0].type == "cpu" or len(set(devices)) == len(devices))
        if not alike:
            return data_parallel.allreduce
    if algorithm not in (None, *ALLREDUCE):
        raise ValueError(f"allreduce: expected one of {', '.join(ALLREDUCE)}, or a function, got {algorithm!r}")
    return partial(collectives.allreduce, algorithm=algorithm or "ring")


def reduce(replicas, allreduce, bucket_bytes, anywhere=lambda used: used):
    """Give every replica the sum of all replicas' gradients.

    `replicas`: modules of one architecture, one a device. ``allreduce(tensors)`` replaces each tensor by the sum of
    all. `bucket_bytes`: the most bytes that travel together, unless one gradient alone has more; 0: each alone.
    A parameter that has a gradient in no replica is left alone; one that has none in some counts as zero there.
    anywhere: where other processes have replicas too, what makes of a list of bools, "used here", "used anywhere".
    Raises ValueError for sparse gradients.
    """
    rows = _used([list(replica.parameters()) for replica in replicas], anywhere)
    for places in plan([row[0].grad for row in rows], bucket_bytes or 1):
        columns = list(zip(*(rows[place] for place in places), strict=True))  # one a replica
        flats = [_flat([p.grad for p in column]) for column in columns]
        allreduce(flats)
        for column, flat in zip(columns, flats, strict=True):
            for p, part in zip(column, flat.split([p.numel() for p in column]), strict=True):
                p.grad = part.view_as(p)


def scale(parameters, factor):
    """Multiply the gradients by `factor`."""
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], factor)


def _used(parameters, anywhere):
    """Return the rows of equal parameters, one a replica, that have a gradient somewhere, and there everywhere."""
    rows = list(zip(*parameters, strict=True))
    used = anywhere([any(p.grad is not None for p in row) for row in rows])
    rows = [row for row, is_used in zip(rows, used, strict=True) if is_used]
    for p in (p for row in rows for p in row):
        if p.grad is None:  # this replica had no shard, or did not use it
            p.grad = torch.zeros_like(p)
        if p.grad.is_sparse:
            raise ValueError("an allreduce needs dense gradients, got a sparse one: use Embedding(sparse=False)")
    return rows


def _flat(tensors):
    """Return one contiguous tensor [n] with all their numbers, in memory of its own."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
