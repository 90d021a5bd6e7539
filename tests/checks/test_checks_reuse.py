"""The exercises on reuse take right answers of any make, and better ones than the worked solution."""

import math

import numpy as np
import pytest
import torch

from d2lmini import checks


@pytest.mark.parametrize("make", [int, float, np.int64, np.float32, np.array, torch.tensor])
def test_tile_reads_takes_any_number(make):
    def tile_reads(m, n, k, tile_m, tile_n):
        return make(m * k * math.ceil(n / tile_n) + k * n * math.ceil(m / tile_m))

    assert checks.tile_reads(tile_reads)


def test_a_wrong_count_is_shown_with_its_type():
    assert "str" in checks.tile_reads(lambda m, n, k, tile_m, tile_n: "256").sentence


def serpentine(A, B, C, tile):
    """Go to and fro, in tiles as in k, so that what is in registers at the end of a tile serves the next."""
    (m, n), k = C.shape, A.shape[1]
    there, kept = {}, {}

    def fetched(matrix, place, *index):
        if there.get(matrix) != place:
            there[matrix], kept[matrix] = place, matrix[index]
        return kept[matrix]

    steps = list(range(k))
    for turn, i in enumerate(range(0, m, tile)):
        for j in list(range(0, n, tile))[:: -1 if turn % 2 else 1]:
            rows, columns, total = slice(i, i + tile), slice(j, j + tile), 0
            for p in steps:
                a = fetched(A, (i, p), rows, slice(p, p + 1))
                total = total + a * fetched(B, (j, p), slice(p, p + 1), columns)
            C[rows, columns] = total
            steps.reverse()


def test_register_tile_takes_fewer_fetches_than_the_solution_needs():
    assert checks.register_tile(serpentine)


def cannon(A, B, copied=True):
    i, j = np.indices(A.shape)
    a, b, c = A[i, (i + j) % len(A)], B[(i + j) % len(A), j], torch.zeros_like(A)
    states = []
    for _ in range(len(A)):
        c += a * b
        states.append((a, b, c.clone() if copied else c))
        a, b = a.roll(-1, dims=1), b.roll(-1, dims=0)
    return states


@pytest.mark.parametrize("make", [
    tuple, lambda states: torch.stack([torch.stack(state) for state in states]),
    lambda states: [[x.double() for x in state] for state in states],
    lambda states: np.array([[x.numpy() for x in state] for state in states]),
])  # fmt: skip
def test_cannon_takes_tensors_and_arrays(make):
    assert checks.cannon(lambda A, B: make(cannon(A, B)))


def test_cannon_says_that_states_share_a_tensor():
    assert "share one tensor c" in checks.cannon(lambda A, B: cannon(A, B, copied=False)).sentence


@pytest.mark.parametrize("wrong", [3, [3], [(1, 2, 3)], [(None, None, None)], [torch.ones(3)]])
def test_cannon_says_what_it_got(wrong):
    verdict = checks.cannon(lambda A, B: wrong)
    assert not verdict
    assert "could not be read" not in verdict.sentence
