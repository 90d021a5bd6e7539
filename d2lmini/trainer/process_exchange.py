"""`rank_threads.exchange` between processes: every rank gives a value and gets all; gradients find the way back.

    forward    rank r gives x_r                 all get x_0, x_1, …
    backward   rank r gets from every rank s the gradient of its loss with respect to x_r, and adds them up
"""

import torch
import torch.distributed as dist


class Group:
    """Some of the processes, in order of rank; making it is a collective call of all."""

    def __init__(self, ranks):
        """Make a group of `ranks` alone: what they exchange in backward must not be taken for a gradient's bucket."""
        self.ranks = list(ranks)
        self.group = dist.new_group(self.ranks)

    def exchange(self, rank, value):
        """Give `value`, a tensor as large as the others' or something that can be pickled; return what all gave."""
        if isinstance(value, torch.Tensor):
            return list(_Gather.apply(value, self))
        values = [None] * len(self.ranks)
        dist.all_gather_object(values, value, group=self.group)
        return values

    def gather(self, tensor):
        """Return the tensors of all ranks of the group."""
        found = [torch.empty_like(tensor) for _ in self.ranks]
        dist.all_gather(found, tensor, group=self.group)
        return found


class _Gather(torch.autograd.Function):
    """All-gather, whose backward sends each gradient to the rank that it belongs to."""

    @staticmethod
    def forward(ctx, x, group):
        """Return the tensors of all ranks."""
        ctx.group = group
        return tuple(group.gather(x.contiguous()))

    @staticmethod
    def backward(ctx, *gradients):
        """Return the sum of all ranks' gradients with respect to this rank's tensor."""
        mine = dist.get_rank()
        found = ctx.group.gather(torch.stack(gradients))
        return sum(part[ctx.group.ranks.index(mine)] for part in found), None
