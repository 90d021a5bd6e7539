"""What torch takes for products of matrices and for a training step on this machine, in a process not held back."""

from functools import partial

import torch

from d2lmini import host
from d2lmini.devices import threads
from d2lmini.measuring.memory_hierarchy import repeated_calls
from d2lmini.measuring.throughput import training_step
from d2lmini.measuring.unconstrained import run_unconstrained
from d2lmini.models.lenet import LeNet


def products_here(sizes):
    """Return size -> `Measurement` of a product of square float32 matrices, the faster of one thread and all cores."""
    square = {n: torch.ones(n, n) for n in sizes}
    cores = {1, host.usable_cores()}
    ways = {n: [_timed(partial(torch.mm, A, A), count) for count in cores] for n, A in square.items()}
    return {n: min(found, key=lambda measurement: measurement.median) for n, found in ways.items()}


def training_here(batch):
    """Return the `Measurement` of a training step of LeNet on a batch of random images, on all cores."""
    step = training_step(LeNet(), torch.rand(batch, 1, 28, 28), torch.zeros(batch, dtype=torch.int64))
    return _timed(step, host.usable_cores())


# The same from a process that is not held back, and where and when it was measured: see `run_unconstrained`.
measured_products = partial(run_unconstrained, products_here)
measured_training = partial(run_unconstrained, training_here)


def _timed(function, cores):
    with threads(cores):
        function()
        return repeated_calls(function, 6)
