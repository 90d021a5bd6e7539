"""Checks of the labs on short numbers between ranks: a scaled step that all ranks skip alike, and 8-bit messages."""

import math

import torch
import torch.distributed as dist

import simgpu
from d2lmini.checks.mechanism import Wrong, brief, called, check, listed, many, need_gpus, number, scored, typed
from d2lmini.checks.traced import RANKS, run_on_ranks
from simgpu.hardware.machines import build

LR, SCALE = 0.5, 2.0**16
TINY = 2.0**-24  # the smallest number of float16
SLOW_MS, BOOK_MS = 1.2, 0.83  # what the lab on skipped steps asks for, and what the book's answer reaches
TENSORS, WIDTH = 24, 64  # its network
MOST, BOOK_SHARE, MOST_ERROR = 26, 25.0, 1  # % of the bytes of float32, % of error
STEPS, NUMBERS, ORDER = 27, 4096, (0, 2, 1, 1, 0, 2, 2, 0, 1)  # gradients come again, not in a plain order


@check
def skipped_step(function):
    """``function(parameters, gradients, scale, lr)``, on each rank: a step of SGD, or none, and the next scale."""
    inf, nan = math.inf, math.nan
    for given, gradients, finite in (
        ("one rank with gradients [64, −0.5] and [6e-08], scale 65,536", [[[64.0, -0.5], [TINY]]], True),
        (
            "two ranks, one with 6e-08, the smallest number of float16",
            [[[1.0, 0.0], [TINY]], [[3.0, 0.0], [0.0]]],
            True,
        ),
        ("three ranks whose gradients add up to more than 65,504", [[[40000.0, -60000.0], [1.0]]] * 3, True),
        ("rank 1 of two has inf in its last gradient", [[[1.0, 2.0], [3.0]], [[1.0, 2.0], [inf]]], False),
        ("rank 0 of three has NaN in its first gradient", [[[nan, 2.0], [3.0]], *[[[1.0, 2.0], [3.0]]] * 2], False),
        ("inf on one rank, −inf on another", [[[1.0, inf], [1.0]], [[1.0, -inf], [1.0]]], False),
    ):
        found, _ = run_on_ranks(_one_step, len(gradients), given, function, gradients)
        _must_step(given, gradients, finite, found)
    machine = build(max(RANKS, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    given = f"{TENSORS} parameters on {RANKS} ranks"
    need_gpus(RANKS)
    with simgpu.use_clock(simgpu.Clock(machine)):
        found, _ = run_on_ranks(_timed, RANKS, given, function)
    if not all(right for right, _, _ in found):
        raise Wrong(f"{given}: the parameters have not moved by the mean gradient")
    took = 1e3 * (max(end for _, _, end in found) - min(begin for _, begin, _ in found))
    told = scored("skipped_step", took, BOOK_MS, "ms a step")
    if took > SLOW_MS:
        raise Wrong(f"{given}: the step is right, but {told}; bring it below {SLOW_MS} ms")
    return f"small gradients count, and all ranks skip the same steps; {told}"


def _one_step(rank, function, gradients):
    parameters = [torch.zeros(len(g), device="sim") for g in gradients[rank]]
    own = [torch.tensor(g, dtype=torch.float16, device="sim") for g in gradients[rank]]
    scale = called(function, parameters, own, SCALE, LR)
    return [p.cpu() for p in parameters], scale


def _must_step(given, gradients, finite, found):
    means = [torch.tensor(gs, dtype=torch.float64).mean(0) for gs in zip(*gradients)]
    for rank, (parameters, scale) in enumerate(found):
        for place, (mean, got) in enumerate(zip(means, parameters)):
            want = (-LR * mean / SCALE if finite else torch.zeros_like(mean)).float()
            if not torch.allclose(got, want, rtol=2e-3, atol=1e-15):
                why = "" if finite else ", for the step is to be skipped on all ranks"
                raise Wrong(
                    f"{given}: parameter {place} of rank {rank} was 0 and should be {brief(want)}{why}; it is "
                    f"{brief(got)}"
                )
        if number(scale) != (SCALE if finite else SCALE / 2):
            want = "the same scale" if finite else "half the scale"
            raise Wrong(f"{given}: rank {rank} should return {want}, {SCALE / (2 - finite):,.0f}; got {typed(scale)}")


def _timed(rank, function):
    """Return whether a step was right, and when it began and ended, in seconds of the clock."""
    parameters = [torch.zeros(WIDTH, WIDTH, device="sim") for _ in range(TENSORS)]
    gradients = [torch.full((WIDTH, WIDTH), rank + i, dtype=torch.float16, device="sim") for i in range(TENSORS)]
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    called(function, parameters, gradients, SCALE, LR)
    torch.sim.synchronize()
    end = simgpu.now()
    want = [-LR * (i + (RANKS - 1) / 2) / SCALE for i in range(TENSORS)]
    return all(torch.allclose(p.cpu(), torch.tensor(w), rtol=2e-3) for p, w in zip(parameters, want)), begin, end


@check
def quarter_mean(function):
    """``function(gradient, unsent)``, on each rank: (mean over the ranks, unsent), of 8-bit messages with feedback."""
    for ranks, n in ((1, 3), (3, 1), (2, 33)):
        _try_mean(function, ranks, n, [[torch.zeros(n)] * ranks], "zeros, ")
        _try_mean(function, ranks, n, _gradients(ranks, n))
    error, share = _try_mean(function, 2, NUMBERS, _gradients(2, NUMBERS))
    given = f"{NUMBERS:,} numbers on 2 ranks, {STEPS} steps"
    if share < 1:
        raise Wrong(f"{given}: {share:.1f} % of float32's bytes cannot carry gradients; send them in messages")
    told = scored("quarter_mean", share, BOOK_SHARE, "% of float32's bytes", ".1f")
    if error > MOST_ERROR:
        raise Wrong(f"{given}: {told}, but the sum of all means is {error:.1f} % off; bring it to {MOST_ERROR} %")
    if share > MOST:
        raise Wrong(f"{given}: the sum of all means is {error:.2f} % off, for {told}; bring it to {MOST} %")
    return f"the sum of all means is {error:.2f} % off, for {told}"


def _gradients(ranks, n):
    """Return a few steps' gradients, for each a list of the ranks': of many sizes, and other ones on each rank."""
    generator = torch.Generator().manual_seed(n)

    def one():
        return torch.randn(n, generator=generator) * torch.randn(n, generator=generator).exp() * 1e-6

    return [[one() for _ in range(ranks)] for _ in range(3)]


def _try_mean(function, ranks, n, gradients, kind=""):
    """Return the error of the sum of all means, and the bytes sent, both in %."""
    given = f"{kind}{many(n, 'number')} on {many(ranks, 'rank')}"
    steps = STEPS if n == NUMBERS else len(ORDER) if len(gradients) > 1 else 2
    order = [ORDER[step % len(ORDER)] % len(gradients) for step in range(steps)]
    found, messages = run_on_ranks(_sum_of_means, ranks, given, function, gradients, order)
    want = sum(torch.stack(gradients[step]).double().mean(0) for step in order)
    for rank, got in enumerate(found):
        if not torch.equal(got, found[0]):
            raise Wrong(f"{given}: ranks 0 and {rank} have different means, so their replicas drift apart")
        if not got.isfinite().all():
            raise Wrong(f"{given}: the mean is not finite: {brief(got)}")
    error = 100 * ((found[0] - want).norm() / want.norm().clamp(min=1e-30)).item()
    if error > 25:
        raise Wrong(f"{given}: the sum of {len(order)} means is {error:.0f} % off; is it the mean over all ranks?")
    sent = max(sum(span.nbytes for span in messages if span.place == f"gpu{rank}") for rank in range(ranks))
    float32 = 2 * (ranks - 1) / ranks * 4 * n * len(order)
    return error, 100 * sent / max(float32, 1)


def _sum_of_means(rank, function, gradients, order):
    unsent, total = torch.zeros(len(gradients[0][rank]), device="sim"), 0
    for step in order:
        mean, unsent = listed_pair(called(function, gradients[step][rank].to("sim"), unsent))
        total = total + mean.double().cpu()
    return total


def listed_pair(answer):
    """Return the two tensors of an answer, or raise."""
    pair = listed(answer, 2)
    if pair is None or not all(isinstance(part, torch.Tensor) for part in pair):
        raise TypeError(f"expected (mean, unsent), two tensors, got {typed(answer)}")
    return pair
