"""Checks of the exercises on reuse: counting what a tiling fetches, tiles in registers, a systolic array on a torus."""

import math
from collections import Counter

import numpy as np
import torch

from d2lmini.checks.mechanism import Wrong, attempt, check, listed, number, typed
from d2lmini.reuse.tiling import CountedMatrix, tiled_product


@check
def tile_reads(function):
    """``function(m, n, k, tile_m, tile_n)``: the elements of A and B that a tiled product fetches, remainders too."""
    for shape in (
        (8, 8, 8, 4, 4),
        (8, 12, 6, 4, 3),
        (7, 8, 3, 4, 4),
        (8, 7, 3, 4, 4),
        (5, 9, 4, 2, 4),
        (3, 2, 5, 4, 8),
        (1, 1, 1, 1, 1),
        (6, 5, 4, 1, 1),
        (4, 6, 0, 2, 2),
        (0, 6, 4, 2, 2),
        (129, 257, 3, 128, 256),  # one row and one column beyond a tile: less than rounding sees
    ):
        m, n, k, tile_m, tile_n = shape
        A, B, C = CountedMatrix(np.ones((m, k))), CountedMatrix(np.ones((k, n))), CountedMatrix(np.zeros((m, n)))
        tiled_product(A, B, C, tile_m, tile_n, 2)
        given = f"[{m}, {k}] × [{k}, {n}] in tiles of {tile_m} × {tile_n}"
        got = attempt(function, *shape, given=given)
        if number(got) is None or not math.isclose(number(got), A.reads + B.reads):
            raise Wrong(f"{given}: counted {A.reads} of A and {B.reads} of B, {A.reads + B.reads}; got {typed(got)}")
    return "as many as a memory counts that really runs the product, whether or not the tiles divide the sizes"


class _Narrow(CountedMatrix):
    """A counting memory that remembers the widest fetch, and the most fetched with none from `other` in between."""

    widest = run = longest_run = 0
    other = None

    def __getitem__(self, index):
        part = super().__getitem__(index)
        self.widest = max(self.widest, part.size)
        self.run, self.other.run = self.run + part.size, 0
        self.longest_run = max(self.longest_run, self.run)
        return part


class _Sums(CountedMatrix):
    """A counting memory that remembers how many elements were stored between two fetches: all were in registers."""

    def __setitem__(self, index, part):
        before = self.writes
        super().__setitem__(index, part)
        self.held[self.fetched()] += self.writes - before


@check
def register_tile(function):
    """``function(A, B, C, tile)``: A B in C, at most `tile` elements in each fetch, and as few as tiles need."""
    for shape in ((4, 4, 4, 2), (6, 4, 5, 2), (7, 5, 3, 3), (2, 3, 4, 5), (5, 4, 3, 1), (1, 1, 1, 1), (3, 2, 1, 2)):
        _try_register_tile(function, *shape)
    return "right, remainders too, with no more fetches than tiles need and at most `tile` elements at once"


def _try_register_tile(function, m, n, k, tile):
    given = f"[{m}, {k}] × [{k}, {n}], tile {tile}"
    a, b = np.arange(1, m * k + 1).reshape(m, k), 1000 * np.arange(1, k * n + 1).reshape(k, n)
    A, B, C = _Narrow(a), _Narrow(b), _Sums(np.full((m, n), -1))
    A.other, B.other = B, A
    C.fetched, C.held = lambda: A.reads + B.reads, Counter()

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
    if (longest := max(A.longest_run, B.longest_run)) > 3 * tile and k > 3:
        raise Wrong(
            f"{given}: {longest} elements of one matrix were fetched and none of the other in between; "
            f"there are registers for {tile} of each, so use what you have before you fetch more"
        )
    if C.reads or C.writes != m * n:
        raise Wrong(
            f"{given}: C was fetched {C.reads} and stored {C.writes} times; store each of its {m * n} elements "
            "once, when its sum is complete"
        )
    if max(C.held.values()) > tile * tile:
        raise Wrong(
            f"{given}: {max(C.held.values())} sums were stored with no fetch between them; there are registers "
            f"for {tile * tile}"
        )
    _judge_fetches(given, A.reads + B.reads, m * k * -(-n // tile) + k * n * -(-m // tile), _fewest(m, n, k, tile))


def _fewest(m, n, k, tile):
    """Return the fetches of the best order: what is in registers at a tile's end serves the next tile beside it.

    Only k's last step is still there, so a step to a tile beside saves a column of A, one below a row of B.
    """
    down, across = -(-m // tile), -(-n // tile)
    saved = (down * across - 1) * tile
    return max(m * k + k * n, m * k * across + k * n * down - saved)


def _judge_fetches(given, fetched, most, fewest):
    if fetched > most:
        raise Wrong(f"{given}: {most} elements of A and B are enough, you fetched {fetched}")
    if fetched < fewest:
        raise Wrong(
            f"{given}: you fetched {fetched} elements of A and B; with fewer than {fewest}, some were "
            "kept for which there is no register"
        )


@check
def cannon(function):
    """``function(A, B)``: what every cell holds after each of the n cycles of Cannon's array, as (a, b, c)."""
    for n in (1, 2, 3, 5):
        _try_cannon(function, n)
    return "all n × n cells work in all n cycles, and the sums are A @ B"


def _try_cannon(function, n):
    A = torch.arange(1, n * n + 1).reshape(n, n)
    B = 100 * A.flip(0) + A.T
    given = f"{n} × {n} matrices"
    states = attempt(function, A, B, given=given)
    states = states if hasattr(states, "ndim") else listed(states)
    if states is None or len(states) != n:
        raise Wrong(f"{given}: expected a list of {n} triples (a, b, c), one for each cycle, got {typed(states)}")
    i, j = torch.meshgrid(torch.arange(n), torch.arange(n), indexing="ij")
    total = torch.zeros_like(A)
    for cycle, state in enumerate(states):
        if not hasattr(state, "__len__") or isinstance(state, dict) or len(state) != 3:
            raise Wrong(f"{given}, cycle {cycle}: expected three tensors a, b, c, got {typed(state)}")
        meeting = (i + j + cycle) % n
        a, b = A[i, meeting], B[meeting, j]
        total = total + a * b
        for place, (name, want) in enumerate(zip("abc", (a, b, total))):
            fault = _fault_of_state(name, want, state[place])
            if fault:
                raise Wrong(f"{given}, cycle {cycle}: {fault}{_shared(states, cycle, place, name)}")


def _fault_of_state(name, want, got):
    if not isinstance(got, (torch.Tensor, np.ndarray)) or tuple(got.shape) != tuple(want.shape):
        return f"expected {name} to be a tensor {list(want.shape)}, got {typed(got)}"
    wrong = torch.as_tensor(got).to(torch.float64) != want.to(torch.float64)
    if not wrong.any():
        return ""
    r, s = wrong.nonzero()[0].tolist()
    return f"cell ({r}, {s}) should have {name} = {want[r, s]}, it has {got[r, s]}"


def _shared(states, cycle, place, name):
    """Say so if a later state holds the same memory: then a change in place has reached the earlier one."""
    memory = [state[place].data_ptr() for state in states if isinstance(state[place], torch.Tensor)]
    if len(memory) == len(states) and memory[cycle] in memory[cycle + 1 :]:
        return f"; the states of several cycles share one tensor {name}: return a copy in each"
    return ""
