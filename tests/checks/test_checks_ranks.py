"""The checks on processes accept right answers of other kinds, and refuse what only looks right."""

import math
import random
from fractions import Fraction

import numpy as np
import torch
from torch.utils.data import DistributedSampler

from d2lmini import checks


def test_a_sampler_of_torch_or_blocks_in_numpy(capsys):
    def torchs(n, rank, world_size, epoch):
        sampler = DistributedSampler(range(n), world_size, rank)
        sampler.set_epoch(epoch)
        return list(sampler)

    def blocks(n, rank, world_size, epoch):
        each = math.ceil(n / world_size)
        order = np.random.default_rng(epoch).permutation(n)
        return np.resize(order, each * world_size)[rank * each : (rank + 1) * each]

    assert checks.sampler_indices(torchs)
    assert checks.sampler_indices(blocks)


def test_an_order_that_only_the_rank_knows_is_told(capsys):
    def own(n, rank, world_size, epoch):
        order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch + 7 * rank)).tolist() * 2
        return order[rank : world_size * -(-n // world_size) : world_size]

    assert "agree on one order" in checks.sampler_indices(own).sentence


def test_another_order_when_asked_again_is_told(capsys):
    state = random.Random(0)

    def unsteady(n, rank, world_size, epoch):
        if rank == 0:
            unsteady.order = state.sample(range(n), n) * world_size
        return unsteady.order[rank : world_size * -(-n // world_size) : world_size]

    assert "two orders" in checks.sampler_indices(unsteady).sentence


def test_what_sticks_out_by_a_sum_from_the_back_as_a_tensor(capsys):
    def backwards(ready, takes):
        outlasts = [sum(takes[i:]) - (ready[-1] - ready[i]) for i in range(len(ready))]
        return torch.tensor(max(outlasts, default=0.0), dtype=torch.float64)

    assert checks.exposed_seconds(backwards)


def test_a_batch_in_fractions_or_as_a_whole_float(capsys):
    def exact(flops_per_s, bytes_per_s, gpus, gradient_bytes):
        return Fraction(gradient_bytes) * Fraction(flops_per_s) / Fraction(bytes_per_s) * (gpus - 1) / (2 * gpus)

    assert checks.hiding_batch(lambda *given: float(math.ceil(exact(*given))))
    assert "round up" in checks.hiding_batch(lambda *given: int(exact(*given))).sentence


def test_a_step_on_a_stack_with_padding(capsys):
    def stacked(parameters, gradients, velocities, lr, beta):
        velocity = beta * torch.cat(velocities) + torch.stack(gradients).mean(0)
        return [parameters - lr * velocity, velocity.tensor_split(len(velocities))]

    assert checks.sharded_step(stacked)


def test_velocities_of_all_parameters_are_told_by_their_shapes(capsys):
    def replicated(parameters, gradients, velocities, lr, beta):
        velocity = beta * torch.cat(velocities) + torch.stack(gradients).mean(0)
        return parameters - lr * velocity, [velocity] * len(velocities)

    assert "one shard for each rank" in checks.sharded_step(replicated).sentence
