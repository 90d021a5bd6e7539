"""Systolic arrays: A @ B for all shapes, counts and cycles as the formulas say, and one step a cycle for what moves."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from d2lmini.reuse.array_cost import DATAFLOWS, cost
from d2lmini.reuse.systolic import multiply

SHAPES = [(3, 3, 3), (7, 5, 9), (1, 1, 1), (5, 1, 7), (1, 6, 2), (0, 3, 2), (3, 0, 2), (3, 2, 0)]
ARRAYS = [(2, 3), (4, 2), (1, 5), (8, 8)]

each_dataflow = pytest.mark.parametrize("dataflow", DATAFLOWS)


def matrices(m, n, k, dtype=np.int64):
    A, B = np.arange(1, m * k + 1).reshape(m, k), 1000 * np.arange(1, k * n + 1).reshape(k, n)
    return A.astype(dtype), B.astype(dtype)


@each_dataflow
@pytest.mark.parametrize("array", ARRAYS, ids=str)
@pytest.mark.parametrize("overlap", [True, False])
def test_product_and_cost(dataflow, array, overlap):
    for m, n, k in SHAPES:
        A, B = matrices(m, n, k)
        C, did, _ = multiply(A, B, *array, dataflow, overlap=overlap)
        assert C.dtype == np.int64
        assert np.array_equal(C, A @ B)
        assert did == cost(m, n, k, *array, dataflow, overlap)


@each_dataflow
def test_floats(dataflow):
    A, B = np.random.default_rng(0).normal(size=(2, 6, 6))
    C, _, _ = multiply(A[:4], B[:, :5], 3, 2, dataflow)
    assert np.allclose(C, A[:4] @ B[:, :5])


@each_dataflow
def test_pieces_follow_directly_unless_moving_in_takes_longer(dataflow):
    # An array of 3 × 2 and 4 pieces: each further piece costs its stream, or the 3 cycles of loading or draining.
    for stream in (2, 7):
        m, n, k = {"output": (6, 4, stream), "weight": (stream, 4, 6), "input": (4, stream, 6)}[dataflow]
        alone = 2 * 3 + 2 + stream - 2
        assert multiply(*matrices(m, n, k), 3, 2, dataflow)[1].cycles == alone + 3 * max(stream, 3)
        assert multiply(*matrices(m, n, k), 3, 2, dataflow, overlap=False)[1].cycles == 4 * alone


@each_dataflow
def test_overlap_changes_when_and_not_what(dataflow):
    (_, did, passes), (_, slowly, the_same) = (multiply(*matrices(7, 5, 9), 4, 3, dataflow, overlap=o) for o in (1, 0))
    assert did.cycles < slowly.cycles
    assert replace(did, cycles=0, utilisation=0) == replace(slowly, cycles=0, utilisation=0)
    assert passes == the_same


def test_what_stays_is_read_once():
    m, n, k, R, S = 7, 5, 9, 4, 3
    by = {dataflow: multiply(*matrices(m, n, k), R, S, dataflow)[1] for dataflow in DATAFLOWS}
    assert by["output"].reads_A + by["output"].reads_B == m * k * 2 + k * n * 2  # both are cut in two
    assert (by["output"].reads_C, by["output"].writes_C) == (0, m * n)
    assert (by["weight"].reads_B, by["weight"].reads_A) == (k * n, m * k * 2)
    assert (by["weight"].reads_C, by["weight"].writes_C) == (m * n * 2, m * n * 3)
    assert (by["input"].reads_A, by["input"].reads_B) == (m * k, k * n * 3)


def test_passes_of_full_pieces():
    # Output: each of the m·k and k·n operands is handed on S - 1 and R - 1 times, row r of the sums R - 1 - r times.
    R, S, k = 3, 4, 5
    _, _, passes = multiply(*matrices(R, S, k), R, S, "output")
    late = sum((R - 1 - r) + (S - 1 - s) for r in range(R) for s in range(S))  # still under way when the last one meets
    assert passes <= R * k * (S - 1) + S * k * (R - 1) + S * R * (R - 1) // 2
    assert passes > R * k * (S - 1) + S * k * (R - 1) + S * R * (R - 1) // 2 - late
    # Weight: loading hands row r on r times, A moves S - 1 times and sums R - 1 times.
    m = 6
    _, _, passes = multiply(*matrices(m, S, R), R, S, "weight")
    assert passes == S * R * (R - 1) // 2 + m * R * (S - 1) + m * S * (R - 1)


def test_passes_of_a_piece_smaller_than_the_array():
    # Each of the two operands and the sum go from element (0, 0) to the edge of the array of 3 × 4.
    assert multiply([[2]], [[3]], 3, 4, "output")[2] == 3 + 2 + 2
    assert multiply([[2]], [[3]], 3, 4, "weight")[2] == 3 + 2  # the weight is already where it belongs


def test_utilisation_is_work_over_room():
    did = multiply(*matrices(3, 3, 3), 3, 3, "weight")[1]
    assert (did.cycles, did.utilisation) == (10, 27 / 90)
    # conv3 of AlexNet on 128 × 128: 54 pieces of weights, of which each streams 169 places.
    assert cost(169, 384, 2304, 128, 128, "weight").cycles == 53 * 169 + 169 + 3 * 128 - 2
    assert cost(1, 256, 256, 256, 256, "output").utilisation < 1 / 256


@each_dataflow
def test_every_value_moves_one_neighbour_a_cycle(dataflow):
    states = []
    multiply(*matrices(4, 3, 5), 3, 3, dataflow, lambda array: states.append((array.right.copy(), array.down.copy())))
    for (right, down), (right_after, down_after) in pairwise(states):
        if right_after.count():  # not where a new piece begins
            assert right_after[:, 1:].tolist() == right[:, :-1].tolist()
        if dataflow == "output" and down_after.count():
            assert down_after[1:].tolist() == down[:-1].tolist()


@pytest.mark.parametrize(
    ("A", "rows", "dataflow", "says"),
    [
        (np.ones((2, 2)), 0, "output", "0 × 2"),
        (np.ones((2, 2)), 2, "row", "'row'"),
        (np.ones((2, 3)), 2, "output", "shapes"),
    ],
)
def test_bad_input(A, rows, dataflow, says):
    with pytest.raises(ValueError, match=says):
        multiply(A, np.ones((2, 2)), rows, 2, dataflow)
    with pytest.raises(ValueError, match="'row'"):
        cost(2, 2, 2, 2, 2, "row")
