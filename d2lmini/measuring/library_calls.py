"""What torch's product of two matrices takes on this machine, by size, in a process that is not held back."""

from functools import partial

import torch

from d2lmini import host
from d2lmini.devices import threads
from d2lmini.measuring.memory_hierarchy import repeated_calls
from d2lmini.measuring.unconstrained import run_unconstrained


def products_here(sizes):
    """Return size -> `Measurement` of a product of square float32 matrices, the faster of one thread and all cores."""
    square = {n: torch.ones(n, n) for n in sizes}
    cores = {1, host.usable_cores()}
    ways = {n: [_timed(partial(torch.mm, A, A), count) for count in cores] for n, A in square.items()}
    return {n: min(found, key=lambda measurement: measurement.median) for n, found in ways.items()}


# The same from a process that is not held back, and where and when it was measured: see `run_unconstrained`.
measured_products = partial(run_unconstrained, products_here)


def _timed(function, cores):
    with threads(cores):
        function()
        return repeated_calls(function, 6)
