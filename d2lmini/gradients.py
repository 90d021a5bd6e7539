"""Gradients of several replicas: made equal by an allreduce, a bucket at a time, then clipped.

    replica 0:  g0 g1 g2 │ g3 …      one bucket is one long tensor, so one allreduce, however many gradients it holds;
    replica 1:  g0 g1 g2 │ g3 …      the gradients become views of it, so that nothing is copied back
                bucket 0 │ bucket 1
"""

import torch


def reduce(replicas, allreduce, bucket_bytes=None):
    """Give every replica the sum of all replicas' gradients.

    `replicas`: modules of one architecture, one a device. ``allreduce(tensors)`` replaces each tensor by the sum of
    all. `bucket_bytes`: the most bytes that travel together, unless one gradient alone has more; None or 0: each
    gradient alone. A parameter without a gradient in every replica is left alone; one that has none in some replicas
    counts as zero there. Raises ValueError for sparse gradients.
    """
    rows = _used([list(replica.parameters()) for replica in replicas])
    for places in buckets([row[0].grad for row in rows], bucket_bytes or 0):
        columns = list(zip(*(rows[place] for place in places), strict=True))  # one a replica
        flats = [_flat([p.grad for p in column]) for column in columns]
        allreduce(flats)
        for column, flat in zip(columns, flats, strict=True):
            for p, part in zip(column, flat.split([p.numel() for p in column]), strict=True):
                p.grad = part.view_as(p)


def buckets(tensors, most_bytes):
    """Return lists of places in `tensors`: neighbours of one type, together at most `most_bytes` bytes or one alone."""
    found, size = [], 0
    for place, tensor in enumerate(tensors):
        same = found and tensors[found[-1][0]].dtype == tensor.dtype
        if same and size + tensor.nbytes <= most_bytes:
            found[-1].append(place)
            size += tensor.nbytes
        else:
            found.append([place])
            size = tensor.nbytes
    return found


def scale(parameters, factor):
    """Multiply the gradients by `factor`."""
    torch._foreach_mul_([p.grad for p in parameters if p.grad is not None], factor)


def _used(parameters):
    """Return the rows of equal parameters, one a replica, that have a gradient somewhere, and there everywhere."""
    rows = [row for row in zip(*parameters, strict=True) if any(p.grad is not None for p in row)]
    for p in (p for row in rows for p in row):
        if p.grad is None:  # this replica had no shard, or did not use it
            p.grad = torch.zeros_like(p)
        if p.grad.is_sparse:
            raise ValueError("an allreduce needs dense gradients, got a sparse one: use Embedding(sparse=False)")
    return rows


def _flat(tensors):
    """Return one contiguous tensor [n] with all their numbers, in memory of its own."""
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
