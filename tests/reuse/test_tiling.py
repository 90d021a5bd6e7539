"""Tiled products, the loops and the modelled cache: right results, and counts that follow from a formula or a trace."""

import sys
from collections import OrderedDict
from functools import partial

import numpy as np
import pytest

from d2lmini.reuse.cache_model import Cache
from d2lmini.reuse.loop_order import compiled, loops_ijk, loops_ikj, loops_packed, loops_tiled
from d2lmini.reuse.tiling import CountedMatrix, fewest_words, intensity, product_sizes, tiled_product
from simgpu.hardware.links import GPUS

# Sizes that divide, that do not, and at the edge.
SHAPES = [(4, 4, 4), (6, 9, 3), (7, 5, 3), (1, 1, 1), (5, 1, 2), (1, 6, 4), (0, 3, 2), (3, 0, 2), (3, 2, 0)]
TILES = [(1, 1, 1), (2, 2, 2), (3, 2, 4), (2, 3, 1), (9, 9, 9)]


def matrices(m, n, k):
    """Return A and B whose elements tell their place, so that a product of the wrong ones shows."""
    return np.arange(1, m * k + 1).reshape(m, k), 1000 * np.arange(1, k * n + 1).reshape(k, n)


def counted(m, n, k):
    A, B = matrices(m, n, k)
    return CountedMatrix(A), CountedMatrix(B), CountedMatrix(np.full((m, n), -7))


@pytest.mark.parametrize("tile", [*TILES, None])
@pytest.mark.parametrize("shape", SHAPES)
def test_products_fetch_what_the_formula_says(taught, shape, tile):
    m, n, k = shape
    A, B, C = counted(*shape)
    if tile:
        tiled_product(A, B, C, *tile)
    else:  # the naive one: tiles of a single element, with a whole row and column at once
        taught("reuse", "naive_product", product_sizes=product_sizes)(A, B, C)
    assert np.array_equal(C.values, A.values @ B.values)
    tile = tile or (1, 1)
    across, down = (-(-n // tile[1])), (-(-m // tile[0]))
    assert (A.reads, B.reads) == (m * k * across, k * n * down)
    assert (A.writes, B.writes, C.reads, C.writes) == (0, 0, 0, m * n)


def test_counted_hands_out_copies_and_counts_bytes():
    memory = CountedMatrix(np.zeros((3, 4), np.float32))
    memory[0, :][:] = 1
    assert not memory.values.any()
    memory[1:, 2] = 5
    assert memory[2, 2] == 5
    assert (memory.reads, memory.writes, memory.nbytes) == (5, 2, 28)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match=r"expected a matrix, got \(3,\)"):
        CountedMatrix(np.zeros(3))
    A, B, C = counted(2, 3, 4)
    with pytest.raises(ValueError, match=r"and \[3, 2\]"):
        product_sizes(A, B, C.values.T)
    with pytest.raises(ValueError, match=r"got \[4, 3\], \[2, 4\]"):
        tiled_product(B, A, C, 1, 1, 1)
    for tile in ((0, 1, 1), (1, -2, 1), (1, 1, 0)):
        with pytest.raises(ValueError, match="edges must be at least 1"):
            tiled_product(A, B, C, *tile)


def test_intensity_of_published_machines():
    v100 = GPUS["V100-SXM2-16GB"]
    ridge = v100.peak_fp32_flops_per_s / v100.memory_bytes_per_s  # 17.5 FLOP/byte
    assert intensity(69, 69, 4) < ridge < intensity(70, 70, 4)
    A, B, C = (CountedMatrix(np.ones((24, 24), np.float32)) for _ in range(3))
    tiled_product(A, B, C, 8, 12, 6)
    assert 2 * 24**3 / (A.nbytes + B.nbytes) == pytest.approx(intensity(8, 12, 4))


def test_lower_bound():
    assert fewest_words(64, 64, 64, 256) == 2 * 64**3 / 16 - 2 * 256
    assert fewest_words(2, 2, 2, 1000) == 0
    with pytest.raises(ValueError, match="at least 1 element, got 0"):
        fewest_words(2, 2, 2, 0)


ORDERS = {
    "ijk": loops_ijk,
    "ikj": loops_ikj,
    "tiled": partial(loops_tiled, loops_ijk, tile=3),
    "tiled ikj": partial(loops_tiled, loops_ikj, tile=2),
    "packed": partial(loops_packed, loops_ikj, tile=4),
}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", SHAPES)
def test_loops_add_the_product(order, shape):
    A, B = matrices(*shape)
    C = np.full((shape[0], shape[1]), 5)
    ORDERS[order](A, B, C)
    assert np.array_equal(C, A @ B + 5)


def test_without_numba_one_line_says_so(monkeypatch):
    monkeypatch.setitem(sys.modules, "numba", None)
    with pytest.raises(RuntimeError, match="pip install numba"):
        compiled(loops_ijk)


@pytest.mark.parametrize(("lines", "line", "ways"), [(4, 2, None), (8, 4, 2), (6, 3, 1), (1, 1, 1)])
def test_cache_agrees_with_a_slow_one(lines, line, ways):
    # The oracle keeps, for each set, the lines in the order of their last use, and searches it.
    cache, rng = Cache(lines, line, ways), np.random.default_rng(lines)
    ways = ways or lines
    sets, dirty, misses, stored = {}, set(), 0, 0
    for address, write in zip(rng.integers(0, 5 * lines * line, 600).tolist(), (rng.random(600) < 0.4).tolist()):
        cache.touch(address, write)
        number = address // line
        recent = sets.setdefault(number % (lines // ways), [])
        if number in recent:
            recent.remove(number)
        else:
            misses += 1
            if len(recent) == ways:
                oldest = recent.pop(0)
                stored += oldest in dirty
                dirty.discard(oldest)
        recent.append(number)
        if write:
            dirty.add(number)
    assert (cache.misses, cache.write_backs) == (misses, stored)
    cache.flush()
    assert cache.words == (misses + stored + len(dirty)) * line
    assert cache.sets == [OrderedDict() for _ in cache.sets]


def moved(order, n, lines, line, ways=None):
    cache = Cache(lines, line, ways)
    A, B = matrices(n, n, n)
    slow_A, slow_B, slow_C = (cache.matrix(X) for X in (A, B, np.zeros((n, n), int)))
    order(slow_A, slow_B, slow_C)
    cache.flush()
    assert np.array_equal(slow_C.rows, A @ B)
    return cache.words


def test_misses_of_the_loop_orders():
    # Lines of 4, 8 of them: a column of B (16 lines) never fits, a row (4 lines) does. ijk: B misses every time; a row
    # of A is fetched again for each j, because a column of B passes in between, and so is the line of C that the sum
    # goes into; C is read from the line that was just written, except in the first of its places.
    n, lines, line = 16, 8, 4
    B, A, C, C_stored = n**3, n * n * n // line, n * n + n * n // line, n * n
    assert moved(loops_ijk, n, lines, line) == (B + A + C + C_stored) * line
    # ikj in 10 lines: a row of C stays while rows of B pass; A, C are fetched once, C is stored once.
    assert moved(loops_ikj, n, 10, line) == n**3 + 3 * n * n
    tiled = partial(loops_tiled, loops_ijk, tile=4)  # 3 tiles of 4 lines do not fit in 8, in 16 they do
    assert moved(tiled, n, 16, line) == (2 * n**3 // 4 + 2 * n * n)
    for order in (loops_ijk, loops_ikj, tiled):
        assert moved(order, n, lines, line) >= fewest_words(n, n, n, lines * line)


def test_matrices_start_on_lines_of_their_own_and_views_keep_their_place():
    cache = Cache(8, 4)
    first, second = cache.matrix([[1, 2, 3]]), cache.matrix([[4, 5], [6, 7]])
    assert (first[0, 2], second[0, 0], cache.misses) == (3, 4, 2)
    view = second[1:, :]
    assert (view.shape, view[0, 1]) == ((1, 2), 7)
    view[0, 1] = 9
    assert (second[1, 1], cache.misses) == (9, 2)
    assert second[5:, 0:1].shape == (0, 1)
    third = cache.matrix([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    assert third[1:, 1:][:, 1:][1, 0] == 9
    for index in ((2, 0), (0, 2), (-1, 0)):
        with pytest.raises(IndexError, match=r"of a matrix of shape \[2, 2\]"):
            second[index]
    assert cache.matrix([]).shape == (0, 0)


@pytest.mark.parametrize("wrong", [(0, 1), (4, 0), (4, 2, 3), (4, 2, 0)])
def test_impossible_caches_are_refused(wrong):
    with pytest.raises(ValueError, match="at least 1"):
        Cache(*wrong)
