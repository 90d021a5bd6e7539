"""What zeros bring on this machine: a product with a dense matrix, or with a list of the numbers that are not zero."""

import warnings

import torch

from d2lmini.devices import threads
from d2lmini.measuring.unheld import run_unheld
from d2lmini.timing import provenance, take_turns


def left_and_right(density, n=512, columns=128):
    """Return a float32 matrix (n, n) with this share of numbers that are not zero, and a dense one (n, columns).

    Below density 1 the left one is in compressed rows (CSR).
    """
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(n, n, generator=generator) * (torch.rand(n, n, generator=generator) < density)
    B = torch.randn(n, columns, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "in beta state"
        return (A.to_sparse_csr() if density < 1 else A), B


def product_seconds(densities):
    """Return density -> median seconds of the product on one thread, and where and when they were measured."""
    with threads(1):  # which need not wait for another that the machine has taken away
        pairs = {density: left_and_right(density) for density in densities}
        found = take_turns({d: lambda A=A, B=B: A @ B for d, (A, B) in pairs.items()}, 25, 2, ["cpu"])
        return {density: measurement.median for density, measurement in found.items()}, provenance(["cpu"])


def measure_here(densities):
    """Return what `product_seconds` does, from a process that is not held back."""
    (times, where), _ = run_unheld(product_seconds, densities)
    return times, where
