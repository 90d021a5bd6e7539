"""Tensor parallelism: layers whose weights are split over the ranks of a group (Shoeybi et al., Megatron-LM, 2019).

    x ──copy──┬── x A₁ ─ f ─ y₁ B₁ ──┐          A split by columns: a rank has some of the outputs
              └── x A₂ ─ f ─ y₂ B₂ ──┴──sum──   B split by rows: a rank has one term of the sum

Forward sums once, behind B; backward once, in front of A.
"""

import torch
import torch.distributed as dist
from torch import nn


class CopyToRanks(torch.autograd.Function):
    """Forward: the same tensor. Backward: an all-reduce of its gradients."""

    @staticmethod
    def forward(ctx, x, group):
        """Return x."""
        ctx.group = group
        return x.view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradients' sum over the ranks."""
        gradient = gradient.clone()
        dist.all_reduce(gradient, group=ctx.group)
        return gradient, None


class SumOverRanks(torch.autograd.Function):
    """Forward: the sum over the ranks. Backward: the gradient, unchanged."""

    @staticmethod
    def forward(ctx, x, group):
        """Return the sum over the ranks."""
        x = x.clone()
        dist.all_reduce(x, group=group)
        return x

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient."""
        return gradient, None


def my_part(tensor, dim, group=None):
    """Return this rank's part of a tensor that is split along `dim`.

    Raises ValueError when the ranks do not divide it.
    """
    size, n = dist.get_world_size(group), tensor.shape[dim]
    if n % size:
        raise ValueError(f"expected a size that {size} ranks divide, got {n}")
    part = tensor.detach().chunk(size, dim)[dist.get_rank(group)]
    return nn.Parameter(part.clone())


def column_parallel(linear, group=None):
    """Return a linear layer with this rank's part of the outputs."""
    part = nn.Linear(1, 1, bias=False)
    part.weight = my_part(linear.weight, 0, group)
    if linear.bias is not None:
        part.bias = my_part(linear.bias, 0, group)
    return part


class RowParallel(nn.Module):
    """A linear layer of which this rank has some of the inputs."""

    def __init__(self, linear, group=None):
        super().__init__()
        self.weight = my_part(linear.weight, 1, group)
        self.bias, self.group = linear.bias, group

    def forward(self, x):
        """Return the whole output, the same on all ranks."""
        y = SumOverRanks.apply(x @ self.weight.t(), self.group)
        return y if self.bias is None else y + self.bias


def cut_layer(layer, group=None):
    """Split a layer of `models.Llama` over the ranks, in place."""
    for name in ("q", "k", "v", "gate", "up"):
        setattr(layer, name, column_parallel(getattr(layer, name), group))
    for name in ("out", "down"):
        setattr(layer, name, RowParallel(getattr(layer, name), group))
    for norm in layer.norms:
        norm.register_forward_hook(lambda _, x, y: CopyToRanks.apply(y, group))
    layer.heads //= dist.get_world_size(group)
    layer.key_heads //= dist.get_world_size(group)
