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
SLOW_MS, BOOK_MS = 3.0, 0.83  # what the lab on skipped steps asks for, and what the book's answer reaches
TENSORS, WIDTH = 24, 64  # its network
EXACT = 1e-5  # the relative error of a step: more than float32's, less than that of shorter numbers
_USUAL = [[1.0, 2.0], [3.0]]
STEPPED = (  # in words, gradients of each rank, scale
    ("one rank with gradients [64, −0.5] and [6e-08]", [[[64.0, -0.5], [TINY]]], SCALE),
    ("two ranks, one with 6e-08, the smallest number of float16", [[[1.0, 0.0], [TINY]], [[3.0, 0.0], [0.0]]], SCALE),
    ("three ranks whose gradients add up to more than 65,504", [[[40000.0, -60000.0], [1.0]]] * 3, SCALE),
    ("two ranks with gradients around 0.1 and 1/3", [[[0.1, 1 / 3], [2.7]], [[0.3, 1 / 7], [0.9]]], 1.0),
)
SKIPPED = (
    ("rank 1 of two has inf in its last gradient", [_USUAL, [[1.0, 2.0], [math.inf]]], SCALE),
    ("rank 0 of three has NaN in its first gradient", [[[math.nan, 2.0], [3.0]], _USUAL, _USUAL], SCALE),
    ("inf on one rank, −inf on another", [[[1.0, math.inf], [1.0]], [[1.0, -math.inf], [1.0]]], 1.0),
)
MOST, BOOK_SHARE, MOST_ERROR = 26, 25.0, 1  # % of the bytes of float32, % of error
STEPS, NUMBERS, ORDER = 27, 4096, (0, 2, 1, 1, 0, 2, 2, 0, 1)  # gradients come again, not in a plain order


@check
def skipped_step(function):
    """``function(parameters, gradients, scale, lr)``, on each rank: a step of SGD, or none, and the next scale."""
    for told, gradients, scale in STEPPED:
        _must_step(function, told, gradients, scale, finite=True)
    for told, gradients, scale in SKIPPED:
        _must_step(function, told, gradients, scale, finite=False)
    machine = build(max(RANKS, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    given = f"{TENSORS} parameters on {RANKS} ranks"
    need_gpus(RANKS)
    with simgpu.use_clock(simgpu.Clock(machine)):
        found, _ = run_on_ranks(_timed, RANKS, given, function)
    for rank, (moved, _, _) in enumerate(found):
        if moved is not None:
            place, want, got = moved
            raise Wrong(
                f"{given}: parameter {place} of rank {rank} should have moved by {want:.6g}, it has by {got:.6g}"
            )
    took = 1e3 * (max(end for _, _, end in found) - min(begin for _, begin, _ in found))
    told = scored("skipped_step", took, BOOK_MS, "ms a step")
    if took > SLOW_MS:
        raise Wrong(
            f"{given}: the step is right, but {told}; bring it below {SLOW_MS:g} ms: every message, test and operation "
            "has a fixed cost"
        )
    return f"small gradients count, and all ranks skip the same steps; {told}"


def _one_step(rank, function, start, gradients, scale):
    own = [torch.tensor(g, dtype=torch.float16, device="sim") for g in gradients[rank]]
    parameters = [torch.full(g.shape, start, device="sim") for g in own]
    answer = called(function, parameters, own, scale, LR)
    return [p.cpu() for p in parameters], answer


def _must_step(function, told, gradients, scale, finite):
    given, start = f"{told}, scale {scale:,g}", 1.0 if scale == 1 else 0.0  # where a step does not drown in a 1
    found, _ = run_on_ranks(_one_step, len(gradients), given, function, start, gradients, scale)
    means = [torch.tensor(gs, dtype=torch.float16).double().mean(0) for gs in zip(*gradients)]
    for rank, (parameters, answer) in enumerate(found):
        for place, (mean, got) in enumerate(zip(means, parameters)):
            want = (start - LR * mean / scale if finite else torch.full_like(mean, start)).float()
            if not torch.allclose(got, want, rtol=EXACT, atol=1e-15):
                why = "" if finite else ", for the step is to be skipped on all ranks"
                raise Wrong(
                    f"{given}: parameter {place} of rank {rank} was {start:g} and should be {brief(want)}{why}; it is "
                    f"{brief(got)}"
                )
        if number(answer) != (scale if finite else scale / 2):
            want = "the same scale" if finite else "half the scale"
            raise Wrong(f"{given}: rank {rank} should return {want}, {scale / (2 - finite):,g}; got {typed(answer)}")


def _timed(rank, function):
    """Return what is wrong with a step, if anything, and when it began and ended, in seconds of the clock."""
    parameters = [torch.zeros(WIDTH, WIDTH, device="sim") for _ in range(TENSORS)]
    everybodys = [
        [torch.full((WIDTH, WIDTH), r + i + 0.1, dtype=torch.float16) for r in range(RANKS)] for i in range(TENSORS)
    ]
    gradients = [every[rank].to("sim") for every in everybodys]
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    called(function, parameters, gradients, SCALE, LR)
    torch.sim.synchronize()
    end = simgpu.now()
    for place, (p, every) in enumerate(zip(parameters, everybodys)):
        want = -LR * torch.stack(every).double().mean(0) / SCALE
        off = (p.cpu() - want).abs().flatten()
        if not off.max() <= EXACT * want.abs().max():
            worst = off.nan_to_num(math.inf).argmax()
            return (place, want.flatten()[worst].item(), p.flatten()[worst].item()), begin, end
    return None, begin, end


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
        hint = "; is it the mean over all ranks?" if ranks > 1 else ""
        raise Wrong(f"{given}: the sum of {len(order)} means is {error:.0f} % off{hint}")
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
    if any(part.dtype != torch.float32 for part in pair):
        raise TypeError(f"expected (mean, unsent) in float32, got {' and '.join(str(part.dtype) for part in pair)}")
    return pair
