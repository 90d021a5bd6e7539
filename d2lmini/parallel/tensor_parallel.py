"""Tensor parallelism: layers whose weights are split over the ranks of a group (Shoeybi et al., Megatron-LM, 2019).

    x ──copy──┬── x A₁ ─ f ─ y₁ B₁ ──┐          A split by columns: a rank has some of the outputs
              └── x A₂ ─ f ─ y₂ B₂ ──┴──sum──   B split by rows: a rank has one term of the sum

Forward sums once, behind B; backward once, in front of A. Sequence parallelism (Korthikanti et al., 2023) also splits
by tokens what is whole: an all-gather takes the place of copy, and a reduce-scatter that of sum.
"""

from functools import partial

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


class GatherTokens(torch.autograd.Function):
    """Forward: the tokens of all ranks. Backward: the sum of their gradients, of this rank's tokens."""

    @staticmethod
    def forward(ctx, sequences, x, group):
        """Return (sequences, length, width) for this rank's part of all tokens, (tokens, width)."""
        ctx.group = group
        return _gathered(x, group).unflatten(0, (sequences, -1))

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient, (tokens, width)."""
        return None, _scattered(gradient.flatten(0, 1), ctx.group), None


class ScatterSum(torch.autograd.Function):
    """Forward: the sum over the ranks, of this rank's tokens. Backward: the gradients of all tokens."""

    @staticmethod
    def forward(ctx, x, group):
        """Return (tokens, width) for (sequences, length, width)."""
        ctx.group, ctx.sequences = group, x.shape[0]
        return _scattered(x.flatten(0, 1), group)

    @staticmethod
    def backward(ctx, gradient):
        """Return the gradient, (sequences, length, width)."""
        return _gathered(gradient, ctx.group).unflatten(0, (ctx.sequences, -1)), None


def _gathered(x, group):
    whole = x.new_empty(dist.get_world_size(group) * x.shape[0], x.shape[1])
    dist.all_gather_into_tensor(whole, x.contiguous(), group=group)
    return whole


def _scattered(x, group):
    mine = x.new_empty(x.shape[0] // dist.get_world_size(group), x.shape[1])
    dist.reduce_scatter_tensor(mine, x.contiguous(), group=group)
    return mine


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

    def __init__(self, linear, group=None, join=SumOverRanks.apply):
        super().__init__()
        self.weight = my_part(linear.weight, 1, group)
        self.bias, self.group, self.join = linear.bias, group, join

    def forward(self, x):
        """Return the whole output, the same on all ranks."""
        y = self.join(x @ self.weight.t(), self.group)
        return y if self.bias is None else y + self.bias


def cut_layer(layer, group=None, enter=CopyToRanks.apply, join=SumOverRanks.apply):
    """Split a layer of `models.Llama` over the ranks, in place."""
    for name in ("q", "k", "v", "gate", "up"):
        setattr(layer, name, column_parallel(getattr(layer, name), group))
    for name in ("out", "down"):
        row = RowParallel(getattr(layer, name), group, join)
        setattr(layer, name, row)
    # q, k, v or gate, up read a norm's output
    for norm in layer.norms:
        norm.register_forward_hook(lambda _, x, y: enter(y, group))
    # of each rank
    layer.heads //= dist.get_world_size(group)
    layer.key_heads //= dist.get_world_size(group)


def cut_tokens(layer, sequences, group=None):
    """Split a layer as `cut_layer` does, and by tokens what is whole otherwise.

    Its input and output are then this rank's part of the tokens of all sequences, (tokens, width). The gradients of
    its norms are terms of a sum over the ranks.
    """
    cut_layer(layer, group, partial(GatherTokens.apply, sequences), ScatterSum.apply)
