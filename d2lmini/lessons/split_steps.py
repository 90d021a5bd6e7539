"""What simulated ranks run, to be timed: a layer, attention or experts, split over the ranks."""

from contextlib import nullcontext
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.experimental import context_parallel
from torch.nn import functional as F

import simgpu
from d2lmini.models.llama import Layer, rotation
from d2lmini.parallel import cut_layer, cut_tokens, visit

BF16 = torch.bfloat16


class Timed(NamedTuple):
    """When a step began, how long it took, in simulated seconds, and the most bytes it needed beside what was there."""

    begin: float
    seconds: float
    peak: int


def timed_on_ranks(step) -> Timed:
    """Run a step on this rank's GPU when all ranks are there."""
    torch.sim.synchronize()
    dist.barrier()
    torch.sim.synchronize()
    torch.sim.reset_peak_memory_stats()
    before, begin = torch.sim.memory_allocated(), simgpu.now()
    step()
    torch.sim.synchronize()
    return Timed(begin, simgpu.now() - begin, torch.sim.max_memory_allocated() - before)


def both_passes(function, *inputs):
    """Return a step: a function of inputs, and backward from its result."""

    def step():
        y = function(*inputs)
        y.backward(torch.empty_like(y))

    return step


def split_layer_step(rank, sequence=False, width=3072) -> Timed:
    """Time one layer, by default of a model with 3 billion parameters, on two sequences of 4,096 tokens.

    It is split over the ranks; sequence: norms and residual additions are split too, by tokens.
    """
    with torch.device("sim"):
        layer = Layer(width, width // 96, width // 96, 8 * width // 3).bfloat16()
        shape = [2 * 4096 // dist.get_world_size()] if sequence else [2, 4096]
        x = torch.zeros(*shape, width, dtype=BF16, requires_grad=True)
        turn = [t.bfloat16() for t in rotation(4096, 96)]
    if sequence:
        cut_tokens(layer, 2)
    else:
        cut_layer(layer)
    return timed_on_ranks(both_passes(layer, x, turn))


def feed_forward(hidden=16384):
    """Return a feed-forward network 4,096 wide."""
    return nn.Sequential(nn.Linear(4096, hidden), nn.GELU(), nn.Linear(hidden, 4096)).bfloat16()


def split_attention_step(rank, length) -> Timed:
    """Time causal attention with 32 heads, its sequence split over the ranks by torch's `context_parallel`."""
    n = dist.get_world_size()
    qkv = [torch.zeros(1, 32, length, 128, dtype=BF16, device="sim") for _ in range(3)]
    split = context_parallel(init_device_mesh("sim", (n,)), buffers=qkv, buffer_seq_dims=[2] * 3)
    with split if n > 1 else nullcontext():
        inputs = [t.clone().requires_grad_() for t in qkv]
        return timed_on_ranks(both_passes(lambda *qkv: F.scaled_dot_product_attention(*qkv, is_causal=True), *inputs))


def experts_step(rank, sent) -> Timed:
    """Time a layer of experts, one a rank; sent: how many tokens each rank sends to each expert."""
    with torch.device("sim"):
        expert = feed_forward(hidden=14336)
        x = torch.zeros(sum(sent), 4096, dtype=BF16, requires_grad=True)
    received = [sent[rank]] * dist.get_world_size()
    return timed_on_ranks(both_passes(visit, expert, x, sent, received))
