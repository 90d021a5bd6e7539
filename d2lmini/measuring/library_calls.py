"""What libraries bring on this machine: a plain loop beside torch on one thread and on all cores; products by size.

All in a process that is not held back. The loops are compiled by Numba, so what is left is the library's part: vector
instructions, tiles that fit the caches, several cores.
"""

from functools import partial

import numpy as np
import torch

from d2lmini.devices import threads
from d2lmini.hardware import host
from d2lmini.measuring.memory_hierarchy import repeated_calls
from d2lmini.measuring.unheld import run_unheld
from d2lmini.reuse.loop_order import compiled, loops_ikj

ROUNDS = 3  # of six runs each


def random_loop(out):
    """Fill `out` with random numbers from 0 to 1, one after the other (Numba's and torch's CPU: Mersenne Twister)."""
    for i in range(len(out)):
        out[i] = np.random.random()


def fourier_loop(x):
    """Return the Fourier transform of complex `x`, of a power of two numbers (Stockham's order of Cooley and Tukey)."""
    out, other = x.copy(), x.copy()
    half, done = len(x) // 2, 1
    while half:
        for j in range(half):
            turn = np.exp(-1j * np.pi * j / half)
            for k in range(j * done, j * done + done):
                a, b = out[k], out[k + half * done]
                other[k + j * done], other[k + j * done + done] = a + b, turn * (a - b)
        out, other = other, out
        half, done = half // 2, 2 * done
    return out


def ways():
    """Return name -> (loop, library), functions without arguments of the three jobs, of 64 bits each.

    Raises RuntimeError where Numba is missing.
    """
    numbers, n = np.empty(2**18), 96
    x, A, B = (torch.randn(shape, dtype=torch.complex128) for shape in (2**13, (n, n), (n, n)))
    product = partial(compiled(loops_ikj), A.numpy(), B.numpy())
    return {
        "random numbers": (partial(compiled(random_loop), numbers), torch.from_numpy(numbers).uniform_),
        "Fourier transform": (partial(compiled(fourier_loop), x.numpy()), partial(torch.fft.fft, x)),
        "complex product": (lambda: _filled(product, n), partial(torch.mm, A, B)),
    }


def measure_here():
    """Return name -> `Measurement` of the loop, of the library on one thread, and of the library on all cores.

    They take turns, `ROUNDS` times, and the round with the shortest run counts: a machine that others share would else
    be slow for one of them alone.
    """
    found = {}
    for name, (loop, library) in ways().items():
        if name != "random numbers" and not np.allclose(loop(), library()):
            raise RuntimeError(f"{name}: the loop and the library disagree")
        trials = ((loop, 1), (library, 1), (library, host.usable_cores()))
        rounds = [[_timed(*trial) for trial in trials] for _ in range(ROUNDS)]
        found[name] = [min(way, key=lambda measurement: measurement.seconds[0]) for way in zip(*rounds, strict=True)]
    return found


def products_here(sizes):
    """Return size -> `Measurement` of a product of square float32 matrices, the faster of one thread and all cores."""
    square = {n: torch.ones(n, n) for n in sizes}
    cores = {1, host.usable_cores()}
    ways = {n: [_timed(partial(torch.mm, A, A), count) for count in cores] for n, A in square.items()}
    return {n: min(found, key=lambda measurement: measurement.median) for n, found in ways.items()}


# The same from a process that is not held back, and where and when it was measured: see `run_unheld`.
measured, measured_products = partial(run_unheld, measure_here), partial(run_unheld, products_here)


def _filled(product, n):
    C = np.zeros((n, n), dtype=complex)
    product(C)
    return C


def _timed(function, cores):
    with threads(cores):
        function()
        return repeated_calls(function, 6)

