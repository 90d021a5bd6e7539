"""What the chapter on DDP's scaling needs for its step: a machine, large dense layers, a clock, and one all-reduce."""

import torch
import torch.distributed as dist

import simgpu

WIDTH, LAYERS = 4096, 4
N = LAYERS * 4 * WIDTH**2  # weights


def set_up(machine):
    """Make a machine's GPUs, for tensors with shapes but no numbers."""
    simgpu.enable(machine=machine, accelerator=True, shapes_only=True)


def inputs(tokens):
    """Return a rank's weights, as a list, and a batch; both want gradients. All ranks leave together."""
    shapes = [(4 * WIDTH, WIDTH), (WIDTH, 4 * WIDTH)] * (LAYERS // 2)
    options = {"device": "sim", "dtype": torch.bfloat16}
    weights = [torch.empty(s, **options).requires_grad_() for s in shapes]
    X = torch.empty(tokens, WIDTH, **options).requires_grad_()
    dist.barrier()
    return weights, X


def now():
    """Return the simulated clock's seconds when this rank's GPU has finished its work."""
    torch.sim.synchronize()
    return simgpu.now()


def timed_sum(rank):
    """Return the seconds of an all-reduce of one layer's gradients."""
    data = torch.empty(N // LAYERS, device="sim", dtype=torch.bfloat16)
    dist.barrier()
    begin = now()
    dist.all_reduce(data)
    return now() - begin
