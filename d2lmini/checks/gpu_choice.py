"""The check of the lab on how many GPUs a rate takes: steps of LeNet are simulated, and the runs counted."""

import functools
from math import log2

import torch
import torch.distributed as dist
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import simgpu
from d2lmini.checks.mechanism import Wrong, ask, check, need_gpus, pair, scored
from d2lmini.models import LeNet
from simgpu.hardware import MACHINES

GPUS, FEWEST_IMAGES = (1, 2, 4, 8), 256
TARGETS = (
    (500_000, 2048),
    (1_000_000, 2048),
    (1_280_000, 4096),
    (700_000, 1024),
    (350_000, 4096),
)  # images a second, most images in a step
BOOK_RUNS = 19  # of the book's answer, for all targets


@check
def few_gpus(function):
    """``function(rate_of, target, most)``: (GPUs, images), the fewest GPUs that are fast enough, then fewest images."""
    need_gpus(8, numbers=False)
    runs = []
    for target, most in TARGETS:
        given = f"{target:,} images a second, at most {most:,} in a step"

        def rate_of(gpus, images):
            runs.append((gpus, images))
            return _allowed(gpus, images) and _rate(int(gpus), int(images))

        before = len(runs)
        found = ask(function, rate_of, target, most, given=given, what="a pair of numbers (GPUs, images)", read=pair)
        _judge(given, *found, target, most)
        if len(runs) == before:
            raise Wrong(f"{given}: rate_of was not called; the pair should come from what it returns")
    found = scored("few-gpus", len(runs), BOOK_RUNS, "runs", "d")
    return f"the fewest GPUs, and no more images than they need; found in {found}"


def _allowed(gpus, images):
    """Return True for a choice that can be run, else raise ValueError."""
    if gpus not in GPUS or images < FEWEST_IMAGES or images % FEWEST_IMAGES or not log2(images).is_integer():
        raise ValueError(f"expected 1, 2, 4 or 8 GPUs and 256, 512, 1024, … images, got {gpus} and {images}")
    return True


def _judge(given, gpus, images, target, most):
    told = f"{given}: {gpus} GPU{'s' * (gpus != 1)} with {images:,} images in a step"
    try:
        _allowed(gpus, images)
    except ValueError as error:
        raise Wrong(f"{given}: {error}") from error
    gpus, images = int(gpus), int(images)  # 512.0 is a number of images
    if images > most:
        raise Wrong(f"{told}, which are too many images")
    if (rate := _rate(gpus, images)) < target:
        raise Wrong(f"{told} reach {rate:,.0f} images a second")
    if gpus > 1 and (rate := _rate(gpus // 2, most)) >= target:
        raise Wrong(f"{told} are fast enough, but so are half as many GPUs: {rate:,.0f} images a second with {most:,}")
    if images > FEWEST_IMAGES and (rate := _rate(gpus, images // 2)) >= target:
        raise Wrong(f"{told} are fast enough, but so is half as large a step: {rate:,.0f} images a second")


@functools.cache
def _rate(gpus, images):
    """Return the images a second of training LeNet with DDP on GPUs of a DGX A100, with a launch overhead of 25 µs."""
    with simgpu.use_clock(simgpu.Clock(MACHINES["DGX-A100"])):
        return images / max(simgpu.spawn(_step, (images,), nprocs=gpus))


def _step(rank, images):
    """Return the seconds of the second step."""
    part = images // dist.get_world_size()
    X, y = torch.zeros(part, 1, 28, 28, device="sim"), torch.zeros(part, dtype=torch.int64, device="sim")
    model = DistributedDataParallel(LeNet().to("sim"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        dist.barrier()  # all ranks start together
        start = simgpu.now()
        optimizer.zero_grad()
        cross_entropy(model(X), y).backward()
        optimizer.step()
    torch.sim.synchronize()
    return simgpu.now() - start
