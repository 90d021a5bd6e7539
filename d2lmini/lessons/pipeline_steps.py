"""What simulated ranks run by torch's schedules of a pipeline: a step to be timed."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage

from d2lmini.lessons.split_steps import BF16, Timed, feed_forward, timed_on_ranks
from d2lmini.parallel.torch_schedules import SCHEDULES, stage_numbers


def pipeline_step(rank, name) -> Timed:
    """Time one of torch's schedules: two feed-forward networks a rank, 8 micro-batches of 4,096 tokens."""
    n, device = dist.get_world_size(), torch.device("sim", rank)
    own = stage_numbers(name, rank, n)
    with device:
        x, batch = (torch.zeros(k * 4096, 4096, dtype=BF16) for k in (1, 8))
        modules = [nn.Sequential(*(feed_forward() for _ in range(2 // len(own)))) for _ in own]
    for p in nn.ModuleList(modules).parameters():
        p.grad = torch.zeros_like(p)
    stages = [
        PipelineStage(module, i, n * len(own), device, x.clone().requires_grad_(i > 0), x.clone().requires_grad_())
        for module, i in zip(modules, own)
    ]
    schedule = SCHEDULES[name](stages if len(own) > 1 else stages[0], 8, loss_fn=lambda y, target: y.mean())
    last = {"target": batch} if n * len(own) - 1 in own else {}

    def step():
        schedule.step(*([batch] if rank == 0 else []), **last)

    step()  # the first allots what later steps receive into
    return timed_on_ranks(step)
