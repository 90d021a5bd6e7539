"""All-to-all with gradients: every rank sends a part of its tensor to every rank.

    rank 0 has a0 a1        rank 0 then has a0 b0
    rank 1 has b0 b1        rank 1 then has a1 b1

The gradients go back on the same ways, by an all-to-all with the sizes exchanged.
"""

import torch
import torch.distributed as dist


class AllToAll(torch.autograd.Function):
    """Send part j of a tensor to rank j; return what came, by rank."""

    @staticmethod
    def forward(ctx, x, sent=None, received=None):
        """Return what came.

        sent, received: rows for and from each rank; None: equal parts.
        """
        ctx.sizes = received, sent
        rows = len(x) if received is None else sum(received)
        came = x.new_empty(rows, *x.shape[1:])
        dist.all_to_all_single(came, x.contiguous(), received, sent)
        return came

    @staticmethod
    def backward(ctx, gradient):
        """Return each part's gradient to the rank that had sent it."""
        return AllToAll.apply(gradient, *ctx.sizes), None, None
