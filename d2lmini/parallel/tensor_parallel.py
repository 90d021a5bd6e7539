"""Tensor parallelism: layers whose weights are cut over the ranks of a group (Shoeybi et al., Megatron-LM, 2019).

    x ──copy──┬── x A₁ ─ f ─ y₁ B₁ ──┐          A cut by columns: a rank has some of the outputs
              └── x A₂ ─ f ─ y₂ B₂ ──┴──sum──   B cut by rows: a rank has one term of the sum

Forward sums once, behind B; backward once, in front of A.
"""

import torch
import torch.distributed as dist
from torch import nn


class CopyToRanks(torch.autograd.Function):
    """One tensor for all ranks; in backward, the sum of what each wants."""

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
    """The sum of the ranks' tensors; in backward, its gradient for each."""

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
    """Return a copy of this rank's part of a tensor that is cut along `dim`.

    Raises ValueError when the ranks do not divide it.
    """
    size = dist.get_world_size(group)
    if tensor.shape[dim] % size:
        raise ValueError(
            f"expected a dimension that {size} ranks divide, got"
            f" {tensor.shape[dim]}"
        )
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
    """A linear layer that is given this rank's part of the inputs."""

    def __init__(self, linear, group=None):
        """Take the whole layer; keep this rank's columns."""
        super().__init__()
        self.weight = my_part(linear.weight, 1, group)
        self.bias, self.group = linear.bias, group

    def forward(self, x):
        """Return the whole output, the same on all ranks."""
        y = SumOverRanks.apply(x @ self.weight.t(), self.group)
        return y if self.bias is None else y + self.bias


class Copied(nn.Module):
    """`module`, with its output copied to the ranks of a group."""

    def __init__(self, module, group=None):
        """Take the module, of which every rank has all."""
        super().__init__()
        self.module, self.group = module, group

    def forward(self, x):
        """Return what the module returns."""
        return CopyToRanks.apply(self.module(x), self.group)


def cut_layer(layer, group=None):
    """Cut a layer of `models.Llama` over the ranks, by heads, in place."""
    for name in ("q", "k", "v", "gate", "up"):
        whole = getattr(layer, name)
        setattr(layer, name, column_parallel(whole, group))
    for name in ("out", "down"):
        setattr(layer, name, RowParallel(getattr(layer, name), group))
    layer.norms = nn.ModuleList(Copied(n, group) for n in layer.norms)
    layer.heads //= dist.get_world_size(group)
    layer.key_heads //= dist.get_world_size(group)
