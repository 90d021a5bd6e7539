"""What libraries bring on this machine: a plain loop beside torch on one thread and on all cores; products by size.

All in a process that is not held back. The loops are compiled by Numba, so what is left is the library's part: vector
instructions, tiles that fit the caches, several cores.
"""

import json
import sys
from functools import partial

import numpy as np
import torch

from d2lmini.devices import threads
from d2lmini.hardware import host
from d2lmini.measuring.memory_hierarchy import repeated
from d2lmini.measuring.unheld import run_unheld
from d2lmini.reuse.loop_order import loops_ikj
from d2lmini.timing import Measurement, provenance

SIZES = {"random numbers": 2**18, "Fourier transform": 2**13, "complex product": 96}


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


def ways(sizes):
    """Return name -> (loop, library), functions without arguments of the three jobs, at these sizes, in 64 bits each.

    Raises RuntimeError where Numba is missing.
    """
    try:
        from numba import njit
    except ImportError as error:
        raise RuntimeError("the loops need Numba: pip install numba") from error
    numbers, n = np.empty(sizes["random numbers"]), sizes["complex product"]
    x, A, B = (torch.randn(shape, dtype=torch.complex128) for shape in (sizes["Fourier transform"], (n, n), (n, n)))
    product = partial(njit(loops_ikj), A.numpy(), B.numpy())
    return {
        "random numbers": (partial(njit(random_loop), numbers), torch.from_numpy(numbers).uniform_),
        "Fourier transform": (partial(njit(fourier_loop), x.numpy()), partial(torch.fft.fft, x)),
        "complex product": (lambda: _filled(product, n), partial(torch.mm, A, B)),
    }


def measure_here(sizes, repeat=6):
    """Return name -> seconds of the loop, the library on one thread, the library on all cores, shortest first."""
    found = {}
    for name, (loop, library) in ways(sizes).items():
        if name != "random numbers" and not np.allclose(loop(), library()):
            raise RuntimeError(f"{name}: the loop and the library disagree")
        found[name] = [_seconds(loop, 1, repeat), *(_seconds(library, n, repeat) for n in (1, host.usable_cores()))]
    return found


def products_here(sizes, repeat=6):
    """Return size -> seconds of a product of square float32 matrices, on one thread or on all cores: the faster."""
    square = {n: torch.ones(n, n) for n in sizes}
    cores = {1, host.usable_cores()}
    return {n: min(_seconds(partial(torch.mm, A, A), count, repeat) for count in cores) for n, A in square.items()}


def measured(sizes=None, timeout=300):
    """Return name -> (loop, library on one thread, on all cores), each a `Measurement`, and where and when it was.

    Raises RuntimeError with the last line of what went wrong.
    """
    answer = run_unheld(__spec__.name, json.dumps(sizes or SIZES), timeout=timeout)
    return {name: [Measurement(tuple(s)) for s in rows] for name, rows in answer["seconds"].items()}, answer["where"]


def measured_products(sizes, timeout=300):
    """Return size -> `Measurement` as `products_here` takes it, and where and when it was."""
    answer = run_unheld(__spec__.name, json.dumps(list(sizes)), timeout=timeout)
    return {int(n): Measurement(tuple(seconds)) for n, seconds in answer["seconds"].items()}, answer["where"]


def _filled(product, n):
    C = np.zeros((n, n), dtype=complex)
    product(C)
    return C


def _seconds(function, cores, repeat):
    def run(count):
        for _ in range(count):
            function()

    with threads(cores):
        function()
        return repeated(run, 1, repeat).seconds


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    found = measure_here(wanted) if isinstance(wanted, dict) else products_here(wanted)
    torch.set_num_threads(host.usable_cores())  # what the provenance names
    print(json.dumps({"seconds": found, "where": provenance(["cpu"])}))
