"""Attention over a sequence that is split over ranks: ring attention, and Ulysses (context parallelism).

Every rank has the queries, keys and values of its own tokens: tensors of shape (batch, heads, tokens, width).

    ring       keys and values travel from rank to rank; each rank joins what it has attended to (Liu et al., 2023)
    Ulysses    an all-to-all: a rank has some heads of all tokens meanwhile (Jacobs et al., 2023)
"""

import torch
import torch.distributed as dist
from torch.nn import functional as F

from d2lmini.parallel.all_to_all import AllToAll


def attend(q, k, v, later=None):
    """Return attention and the logarithm of each softmax's sum.

    later: where a key comes after the query, and is hidden.
    """
    scores = q @ k.mT / q.shape[-1] ** 0.5
    if later is not None:
        scores = scores.masked_fill(later, -1e30)
    return scores.softmax(-1) @ v, scores.logsumexp(-1, keepdim=True)


class RingShift(torch.autograd.Function):
    """Send tensors to the next rank; in backward gradients come back."""

    @staticmethod
    def forward(ctx, *tensors):
        """Return the tensors of the rank before."""
        return shift(tensors, 1)

    @staticmethod
    def backward(ctx, *gradients):
        """Return the gradients that the next rank has."""
        return shift(gradients, -1)


def shift(tensors, step):
    """Send tensors `step` ranks further round the ring; return those that come."""
    rank, n = dist.get_rank(), dist.get_world_size()
    tensors = [t.contiguous() for t in tensors]
    came = tuple(torch.empty_like(t) for t in tensors)
    to, source = (rank + step) % n, (rank - step) % n
    messages = [dist.P2POp(dist.isend, t, to) for t in tensors]
    messages += [dist.P2POp(dist.irecv, t, source) for t in came]
    for work in dist.batch_isend_irecv(messages):
        work.wait()
    return came


def merge(out, log_sum, more, new):
    """Return attention over two sets of keys, and its logarithm."""
    total = torch.logaddexp(log_sum, new)
    return out + (more - out) * (new - total).exp(), total


def ring_attention(q, k, v, held):
    """Return causal attention of this rank's queries to all ranks' keys.

    held: for each rank, the positions of its tokens in the sequence.
    """
    rank, n = dist.get_rank(), dist.get_world_size()
    mine, found = held[rank].to(q.device)[:, None], None
    for step in range(n):
        if step:
            k, v = RingShift.apply(k, v)
        theirs = held[rank - step].to(q.device)
        part = attend(q, k, v, theirs > mine)
        found = merge(*found, *part) if step else part
    return found[0]


def swap(x, split, join):
    """Split a tensor over the ranks along a dimension; join another."""
    parts = torch.stack(x.chunk(dist.get_world_size(), split))
    return torch.cat(list(AllToAll.apply(parts)), join)


def ulysses_attention(q, k, v):
    """Return causal attention; rank r has the r-th part of the tokens.

    The number of ranks must divide that of the heads.
    """
    q, k, v = (swap(t, split=1, join=2) for t in (q, k, v))
    out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
    return swap(out, split=2, join=1)
