"""Gradient compression: communication hooks for DDP that send a few numbers
of each bucket, or one bit for each, and keep what was not sent for the next
step.

    bucket + unsent ──encode──▶ message ──all_gather──▶ decode, add, ÷ P
           └──────── − decode(message) ──▶ unsent

Messages of different ranks cannot be added on the way, as gradients can: they
are gathered, so each rank receives P − 1 of them.
"""

import torch
import torch.distributed as dist
from torch.nn import functional as F


class TopK:
    """Send a share of the numbers, the largest: 8 bytes for each."""

    def __init__(self, share):
        self.share = share

    def encode(self, x):
        """Return the message for `x` [n]: values, and places as int32."""
        k = max(1, round(self.share * x.numel()))
        places = x.abs().topk(k).indices
        return x[places], places.int()

    def decode(self, message, n):
        """Return the `n` numbers that a message stands for."""
        values, places = message
        return values.new_zeros(n).index_copy(0, places.long(), values)


class Signs:
    """Send one bit for each number, its sign, and the mean magnitude."""

    def encode(self, x):
        """Return the message for `x` [n]: bytes of 8 signs, and the mean."""
        return pack_bits(x >= 0), x.abs().mean().reshape(1)

    def decode(self, message, n):
        """Return the `n` numbers that a message stands for."""
        packed, mean = message
        return (2 * unpack_bits(packed, n).to(mean.dtype) - 1) * mean


def pack_bits(bits):
    """Return truth values [n] as ⌈n/8⌉ bytes, the first the lowest bit."""
    padded = F.pad(bits.to(torch.uint8), (0, -len(bits) % 8))
    places = torch.arange(8, device=bits.device)
    packed = (padded.view(-1, 8) * 2**places).sum(1)
    return packed.to(torch.uint8)


def unpack_bits(packed, n):
    """Return the first `n` bits of bytes, as zeros and ones."""
    places = torch.arange(8, device=packed.device)
    return ((packed[:, None] >> places) & 1).flatten()[:n]


class Compressor:
    """A rank's codec, and what it has not sent, if it is to send it later."""

    def __init__(self, codec, feedback=True):
        self.codec, self.feedback, self.unsent = codec, feedback, {}


def compressed_mean(state, bucket):
    """Average a bucket over the ranks: a communication hook for DDP.

    state: this rank's `Compressor`. What is left out is kept for each
    parameter, as DDP puts its buckets together anew after the first step.
    """
    parameters, wanted = bucket.parameters(), bucket.buffer()
    if parameters[0] in state.unsent:
        wanted = wanted + torch.cat([state.unsent[p] for p in parameters])
    message, n = state.codec.encode(wanted), wanted.numel()
    if state.feedback:
        left = wanted - state.codec.decode(message, n)
        parts = left.split([p.numel() for p in parameters])
        state.unsent.update(zip(parameters, parts))
    received = zip(*(gathered(part) for part in message))
    total = sum(state.codec.decode(each, n) for each in received)
    future = torch.futures.Future()
    future.set_result(total / dist.get_world_size())
    return future


def gathered(tensor):
    """Return the tensors of all ranks, which have one shape, in a list."""
    parts = [torch.empty_like(tensor) for _ in range(dist.get_world_size())]
    dist.all_gather(parts, tensor)
    return parts
