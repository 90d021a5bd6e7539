"""Random numbers of a new process: rank 0 goes on with those of the program that starts it, all others draw their own.

On a cluster each process draws other numbers unless the program seeds them. Here they are other ones too, but the same
in every run.
"""

import random
from dataclasses import replace

import torch

from simgpu.device import random as device_random

try:
    import numpy
except ImportError:  # torch does without, and so do simulated ranks
    numpy = None
_STEP = 0x9E3779B97F4A7C15  # odd, so that no two ranks have one seed


def draw():
    """Return a number that stands for the state of torch's generator; others than torch's start anew in each run."""
    before = torch.default_generator.get_state()
    try:
        return int(torch.randint(2**62, ()))
    finally:
        torch.default_generator.set_state(before)


def gpus_of(rank, gpus, base):
    """Return a rank's own list of its node's GPUs, whose memory all share and whose random numbers are the rank's."""
    own = []
    for gpu in gpus:
        generator = device_random.make(gpu.index)
        if rank:
            generator.manual_seed(_seed(rank, base) + gpu.index)
        else:
            generator.set_state(gpu.generator.get_state())
        own.append(replace(gpu, generator=generator))
    return own


def seed(rank, base):
    """Seed the calling rank's generators of torch, numpy and Python; base: of `draw`."""
    if rank:
        number = _seed(rank, base)
        torch.default_generator.manual_seed(number)
        random.seed(number)
        if numpy:
            numpy.random.seed(number % 2**32)


def _seed(rank, base):
    return (base + rank * _STEP) % 2**63
