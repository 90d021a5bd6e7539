"""All-reduce of many tensors at once: put into buckets first, since every message has a fixed cost.

    tensors of a rank   ▐W1▌▐b1▌▐────W2────▌▐b2▌▐──W3──▌        one type, in order
    buckets             ▐W1 b1 W2──────────▌▐b2 W3─────▌        each at most `bucket_bytes`, one all-reduce for each

Gradients become views of their bucket, so that nothing is copied back.
"""

from collections.abc import Callable, Sequence

import torch


def plan_buckets(tensors: Sequence[torch.Tensor], bucket_bytes: float) -> list[list[int]]:
    """Return the buckets as lists of indices into `tensors`.

    A bucket holds tensors of one type, in their order, of at most `bucket_bytes` bytes together; a tensor that is
    larger has a bucket of its own.

    Raises:
        ValueError: Unless `bucket_bytes` is positive.
    """
    if bucket_bytes <= 0:
        raise ValueError(f"a bucket needs at least 1 byte, got {bucket_bytes}")
    buckets: list[list[int]] = []
    filling: dict[torch.dtype, tuple] = {}  # type -> the bucket that is being filled, its bytes
    for index, tensor in enumerate(tensors):
        bucket, size = filling.get(tensor.dtype, (None, 0))
        if bucket is None or size + tensor.nbytes > bucket_bytes:
            bucket, size = [], 0
            buckets.append(bucket)
        bucket.append(index)
        filling[tensor.dtype] = bucket, size + tensor.nbytes
    return buckets


def reduce_gradients(
    replicas: Sequence[Sequence[torch.Tensor]],
    allreduce: Callable,
    bucket_bytes: int,
    any_rank: Callable[[list[bool]], list[bool]] = lambda used: used,
) -> None:
    """Make of all gradients, on every replica, the sums over all replicas; the last parameters' go first.

    A parameter that has a gradient in no replica is left alone; one that has none in some counts as zero there.

    Args:
        replicas: lists of parameters, alike, one list for each replica.
        allreduce: replaces each tensor of a list, one for each replica, by the sum of all.
        bucket_bytes: as in `plan_buckets`; 0: each gradient alone.
        any_rank: maps this process's `used` flags to their logical OR over all processes.

    Raises:
        ValueError: for sparse gradients.
    """
    replicas = [list(params)[::-1] for params in replicas]
    used = any_rank([any(p.grad is not None for p in row) for row in zip(*replicas, strict=True)])
    for bucket in plan_buckets(replicas[0], bucket_bytes or 1):
        places = [place for place in reversed(bucket) if used[place]]  # side by side as in the module
        if places:
            reduce_bucket([[params[place] for place in places] for params in replicas], allreduce)


@torch.no_grad()
def reduce_bucket(replicas: Sequence[Sequence[torch.Tensor]], allreduce: Callable) -> None:
    """Do the same for the gradients of one bucket, which are of one type, used or not."""
    flats = [torch.cat([_vector(_gradient(p)) for p in params]) for params in replicas]
    allreduce(flats)
    for params, flat in zip(replicas, flats):
        for p, part in zip(params, flat.split([p.numel() for p in params])):
            p.grad = part if p.dim() == 1 else part.view_as(p)


def _vector(tensor):
    return tensor if tensor.dim() == 1 else tensor.reshape(-1)  # a view takes a few microseconds, also of a vector


def _gradient(p):
    if p.grad is None:  # this replica had no shard, or did not use the parameter
        return torch.zeros_like(p)
    if p.grad.is_sparse:
        raise ValueError("an allreduce needs dense gradients, got a sparse one: use Embedding(sparse=False)")
    return p.grad
