"""What a call of a group asks for: as in torch's class, it may leave out the options that torch's functions give."""

import torch
import torch.distributed as dist


def listed(tensors):
    """Return a list of tensors, given one or a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def reduction(opts, op=None):
    """Return the reduction that a call names itself or in its options, by default the sum."""
    asked = opts if op is None else op
    return dist.ReduceOp.SUM if asked is None else getattr(asked, "reduceOp", asked)


def root(opts, place=None):
    """Return the root's place that a call names itself or in its options, by default 0."""
    asked = opts if place is None else place
    return 0 if asked is None else getattr(asked, "rootRank", asked)
