"""Checks of the exercises on reuse: counting what a tiling fetches, tiles in registers, a systolic array on a torus."""

import math

import numpy as np
import torch

from d2lmini.checks.mechanism import Wrong, attempt, brief, check
from d2lmini.reuse.tiling import CountedMatrix, tiled_product


@check
def tile_reads(function):
    """``function(m, n, k, tile_m, tile_n)``: the elements of A and B that a tiled product fetches, remainders too."""
    for shape in ((8, 8, 8, 4, 4), (8, 12, 6, 4, 3), (7, 8, 3, 4, 4), (8, 7, 3, 4, 4), (5, 9, 4, 2, 4), (3, 2, 5, 4, 8),
                  (1, 1, 1, 1, 1), (6, 5, 4, 1, 1), (4, 6, 0, 2, 2), (0, 6, 4, 2, 2)):  # fmt: skip
        m, n, k, tile_m, tile_n = shape
        A, B, C = CountedMatrix(np.ones((m, k))), CountedMatrix(np.ones((k, n))), CountedMatrix(np.zeros((m, n)))
        tiled_product(A, B, C, tile_m, tile_n, 2)
        given = f"[{m}, {k}] × [{k}, {n}] in tiles of {tile_m} × {tile_n}"
        got = attempt(function, *shape, given=given)
        if not isinstance(got, (int, float)) or not math.isclose(got, A.reads + B.reads):
            raise Wrong(f"{given}: counted {A.reads} of A and {B.reads} of B, {A.reads + B.reads}; got {brief(got)}")
    return "as many as a memory counts that really runs the product, whether or not the tiles divide the sizes"


class _Narrow(CountedMatrix):
    """A counting memory that remembers the widest fetch."""

    widest = 0

    def __getitem__(self, index):
        part = super().__getitem__(index)
        self.widest = max(self.widest, part.size)
        return part


@check
def register_tile(function):
    """``function(A, B, C, tile)``: A B in C, at most `tile` elements a fetch, each as rarely as possible."""
    for shape in ((4, 4, 4, 2), (6, 4, 5, 2), (7, 5, 3, 3), (2, 3, 4, 5), (5, 4, 3, 1), (1, 1, 1, 1), (3, 2, 1, 2)):
        _try_register_tile(function, *shape)
    return "right, remainders too, with m·n·k (1/tile + 1/tile) fetches of at most `tile` elements at once"


def _try_register_tile(function, m, n, k, tile):
    given = f"[{m}, {k}] × [{k}, {n}], tile {tile}"
    a, b = np.arange(1, m * k + 1).reshape(m, k), 1000 * np.arange(1, k * n + 1).reshape(k, n)
    A, B, C = _Narrow(a), _Narrow(b), CountedMatrix(np.full((m, n), -1))

    def run(tile):
        function(A, B, C, tile)
        return True  # the answer is in C

    attempt(run, tile, given=given)
    if not np.array_equal(A.values, a) or not np.array_equal(B.values, b):
        raise Wrong(f"{given}: your code changed A or B")
    if not np.array_equal(C.values, a @ b):
        i, j = np.argwhere(C.values != a @ b)[0]
        raise Wrong(f"{given}: C[{i}, {j}] should be {(a @ b)[i, j]}, it is {C.values[i, j]}")
    if max(A.widest, B.widest) > tile:
        raise Wrong(f"{given}: you fetched {max(A.widest, B.widest)} elements at once; there are registers for {tile}")
    if C.reads or C.writes != m * n:
        raise Wrong(f"{given}: C was fetched {C.reads} and stored {C.writes} times; store each of its {m * n} elements "
                    "once, when its sum is complete")  # fmt: skip
    expected = m * k * -(-n // tile) + k * n * -(-m // tile)
    if A.reads + B.reads != expected:
        raise Wrong(f"{given}: expected {expected} elements of A and B to be fetched, you fetched {A.reads + B.reads}")


@check
def cannon(function):
    """``function(A, B)``: what every element holds after each of the n cycles of Cannon's array, as (a, b, c)."""
    for n in (1, 2, 3, 5):
        _try_cannon(function, n)
    return "all n × n elements work in all n cycles, and the sums are A @ B"


def _try_cannon(function, n):
    A = torch.arange(1, n * n + 1).reshape(n, n)
    B = 100 * A.flip(0) + A.T
    given = f"{n} × {n} matrices"
    states = attempt(function, A, B, given=given)
    if not isinstance(states, (list, tuple)) or len(states) != n:
        raise Wrong(f"{given}: expected a list of {n} triples (a, b, c), one a cycle, got {brief(states)}")
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    total = torch.zeros_like(A)
    for cycle, state in enumerate(states):
        if not isinstance(state, (list, tuple)) or len(state) != 3:
            raise Wrong(f"{given}, cycle {cycle}: expected three tensors a, b, c, got {brief(state)}")
        meeting = (i + j + cycle) % n
        a, b = A[i, meeting], B[meeting, j]
        total = total + a * b
        for name, want, got in zip("abc", (a, b, total), state):
            if not isinstance(got, torch.Tensor) or got.shape != want.shape:
                raise Wrong(f"{given}, cycle {cycle}: expected {name} to be a tensor [{n}, {n}], got {brief(got)}")
            if not torch.equal(got, want):
                r, s = (got != want).nonzero()[0].tolist()
                raise Wrong(f"{given}, cycle {cycle}: element ({r}, {s}) should have {name} = {want[r, s]}, "
                            f"it has {got[r, s]}")  # fmt: skip
