"""What zeros bring on this machine: a product with a dense matrix, or with a list of the numbers that are not zero."""

import warnings
from functools import partial

import torch

from d2lmini.measuring.unconstrained import run_unconstrained
from d2lmini.timing import take_turns


def left_and_right(density, n=512, columns=128):
    """Return the two matrices of a product: a float32 matrix (n, n) with few numbers, and a dense one (n, columns).

    Args:
        density: The share of the left one's numbers that are not zero; below 1 it is in compressed rows (CSR).
        n, columns: The sizes.
    """
    generator = torch.Generator().manual_seed(0)
    A = torch.randn(n, n, generator=generator) * (torch.rand(n, n, generator=generator) < density)
    B = torch.randn(n, columns, generator=generator)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # "in beta state"
        return (A.to_sparse_csr() if density < 1 else A), B


def measure_here(densities):
    """Return density -> median seconds of the product on one thread, which need not wait for another."""
    torch.set_num_threads(1)
    pairs = {density: left_and_right(density) for density in densities}
    found = take_turns({d: lambda A=A, B=B: A @ B for d, (A, B) in pairs.items()}, 25, 2, ["cpu"])
    return {density: measurement.median for density, measurement in found.items()}


measured = partial(run_unconstrained, measure_here)  # the same, and where and when: see `run_unconstrained`
