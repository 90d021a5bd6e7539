"""Gradients of several replicas: made equal by an allreduce, a bucket at a time, then scaled, clipped and used.

    replica 0:  … g6 │ g7 g8 g9      one bucket is one long tensor, so one allreduce, however many gradients it holds;
    replica 1:  … g6 │ g7 g8 g9      the last parameter's gradient, which backward has first, is in the first bucket
            bucket 1 │ bucket 0
"""

from functools import partial

import torch
from torch import nn

from d2lmini.collectives import executor
from d2lmini.collectives.buckets import plan_buckets, reduce_gradients


def summing(algorithm):
    """Return the function that sums tensors in place: `algorithm` itself, or what has that name (None: a ring)."""
    return algorithm if callable(algorithm) else partial(executor.sum_tensors, algorithm=algorithm or "ring")


def reduce(replicas, allreduce, bucket_bytes, anywhere=lambda used: used):
    """Give every replica the sum of all replicas' gradients, added as `reducer` adds them.

    `replicas`: lists of parameters, alike, one list a device. ``allreduce(tensors)`` replaces each tensor by the sum of
    all. `bucket_bytes`: the most bytes that travel together, unless one gradient alone has more; 0: each alone.
    A parameter that has a gradient in no replica is left alone; one that has none in some counts as zero there.
    anywhere: where other processes have replicas too, what makes of a list of bools, "used here", "used anywhere".
    Raises ValueError for sparse gradients.
    """
    replicas = [list(params)[::-1] for params in replicas]
    used = anywhere([any(p.grad is not None for p in row) for row in zip(*replicas, strict=True)])
    for bucket in plan_buckets(replicas[0], bucket_bytes or 1):
        places = [place for place in reversed(bucket) if used[place]]  # side by side as in the module
        if places:
            reduce_gradients([[params[place] for place in places] for params in replicas], allreduce)


def apply(params, optimizer, factor=1, clip=None, scaler=None):
    """Let the optimiser of `params` take its step with their gradients times `factor`, and drop them.

    clip: the largest norm of all together, or None. scaler: the ``torch.amp.GradScaler`` that scaled the loss, or None.
    """
    if factor != 1:
        torch._foreach_mul_([p.grad for p in params if p.grad is not None], factor)
    if clip is not None:
        if scaler:
            scaler.unscale_(optimizer)
        # Each replica takes the norm of the same sum, so that all get the same, to the last bit.
        nn.utils.clip_grad_norm_(params, clip)
    if scaler:
        scaler.step(optimizer)
        scaler.update()
    else:
        optimizer.step()
    optimizer.zero_grad()
