"""The same matrix product by loops in several orders, in tiles, and by torch: seconds on one thread of this machine.

All are float64; the loops are compiled by Numba. They take turns, so a machine whose speed drifts drifts for all.
"""

from functools import partial

import numpy as np
import torch

from d2lmini.measuring.unconstrained import run_unconstrained
from d2lmini.reuse.loop_order import compiled, loops_ijk, loops_ikj, loops_packed, loops_tiled
from d2lmini.timing import take_turns


def variants(n, tile, rows=None):
    """Return the loops to compare, and the matrices that they work on.

    Args:
        n: B is [n, n].
        tile: Edge of the tiles.
        rows: A is [rows, n]; n by default.

    Returns:
        name -> function that adds A B to C; A; B; C.
    """
    rng, rows = np.random.default_rng(n), rows or n
    A, B, C = rng.random((rows, n)), rng.random((n, n)), np.zeros((rows, n))
    ijk, ikj, tiled, packed = map(compiled, (loops_ijk, loops_ikj, loops_tiled, loops_packed))
    a, b, c = map(torch.from_numpy, (A, B, C))  # the same memory
    functions = {
        "ijk": partial(ijk, A, B, C),
        "ijk in tiles": partial(tiled, ijk, A, B, C, tile),
        "ijk in copied tiles": partial(packed, ijk, A, B, C, tile),
        "ikj": partial(ikj, A, B, C),
        "ikj in copied tiles": partial(packed, ikj, A, B, C, tile),
        "torch": partial(torch.addmm, c, a, b, out=c),
    }
    return functions, A, B, C


def measure_here(n, tile, rounds=6, rows=None):
    """Measure each of the loops in turns, in this process; the first turn of each is checked and not measured.

    Args:
        n: B is [n, n].
        tile: Edge of the tiles.
        rounds: How often each is measured, at least 6.
        rows: A is [rows, n]; n by default.

    Returns:
        name -> `Measurement`.

    Raises:
        RuntimeError: A loop computed a wrong product.
    """
    torch.set_num_threads(1)
    functions, A, B, C = variants(n, tile, rows)
    right = A @ B
    for name, function in functions.items():
        C[:] = 0
        function()
        if not np.allclose(C, right):
            raise RuntimeError(f"{name} computed a wrong product of {len(A)} rows")
    return take_turns(functions, rounds, 0, ["cpu"])


measured = partial(run_unconstrained, measure_here)  # the same, and where and when: see `run_unconstrained`
