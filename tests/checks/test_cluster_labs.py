"""The labs on clusters: right answers that are written otherwise than the book's pass, and faults are named."""

import re
import statistics

import pytest
import torch
import torch.distributed as dist

import simgpu
from d2lmini import checks


def by_a_leader(x, inside, across):
    """The first GPU of each node alone talks to the others."""
    first = dist.get_global_rank(inside, 0)
    dist.reduce(x, first, group=inside)
    if dist.get_rank() == first:
        dist.all_reduce(x, group=across)
    dist.broadcast(x, first, group=inside)
    x.mul_(1 / dist.get_world_size())


def by_views(x, inside, across):
    """Parts that are rows of one tensor, reduced and gathered where they lie; the mean is taken first."""
    size = inside.size()
    rows = torch.nn.functional.pad(x / dist.get_world_size(), (0, -len(x) % size)).view(size, -1)
    mine = rows[inside.rank()].clone()
    dist.reduce_scatter(mine, list(rows), group=inside)
    dist.all_reduce(mine, group=across)
    dist.all_gather(list(rows), mine, group=inside)
    x[:] = rows.flatten()[: len(x)]


@pytest.mark.parametrize("answer", [by_a_leader, by_views])
def test_right_means_pass(answer, capsys):
    assert checks.node_mean(answer), capsys.readouterr().out


def who_waits_least(compute, reduce, steps):
    """The slow rank comes last to the all-reduce."""
    waits = []
    for _ in range(steps):
        compute()
        torch.sim.synchronize()
        begin = simgpu.now()
        reduce()
        torch.sim.synchronize()
        waits.append(simgpu.now() - begin)
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, statistics.median(waits))
    return torch.tensor(everybodys).argmin()


def by_events(compute, reduce, steps):
    """Times of the GPU's own clock; the rank that is slowest in most steps."""
    slowest = []
    for _ in range(steps):
        torch.sim.synchronize()
        begin, end = (torch.sim.Event(enable_timing=True) for _ in range(2))
        begin.record()
        compute()
        end.record()
        torch.sim.synchronize()
        everybodys = [None] * dist.get_world_size()
        dist.all_gather_object(everybodys, begin.elapsed_time(end))
        slowest.append(everybodys.index(max(everybodys)))
        reduce()
    return statistics.mode(slowest)


@pytest.mark.parametrize("answer", [who_waits_least, by_events])
def test_right_ranks_pass(answer, capsys):
    assert checks.slow_rank(answer), capsys.readouterr().out


def first_numbers(x, inside, across):
    """What inside.size() does not divide is forgotten."""
    first = x[: len(x) // inside.size() * inside.size()].clone()
    dist.all_reduce(first)
    x[: len(first)] = first / dist.get_world_size()


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        (checks.node_mean, first_numbers, r"x\[4\] should be -0.24.*3 of 7 numbers differ"),
        (checks.node_mean, lambda x, inside, across: x / 8, "write the mean into it"),
        (checks.slow_rank, lambda compute, reduce, steps: 2, "rank 0 returns 2, whose step 1 alone is long"),
    ],
)
def test_what_is_wrong_is_named(check, answer, says):
    assert re.search(says, check(answer).sentence)
