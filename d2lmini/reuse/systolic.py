"""A systolic array, cycle by cycle: cells in a grid, each handing what it has to one neighbour a cycle.

After H. T. Kung, "Why systolic architectures?", Computer 15(1), 1982: what was read from memory once passes through
many cells (processing elements) and is used in each. Three dataflows for C = A B, named after what a cell keeps, for
an array of R × S cells (A holds the inputs of a layer, B its weights):

    dataflow   cell (r, s) keeps      moves right   moves down   results leave        pieces            steps
    output     a sum of C             A             B            below, once whole    of C,  [m/R][n/S]   k
    weight     an element of B        A             sums of C    below, as they are   of B,  [k/R][n/S]   m
    input      an element of A        B             sums of C    below, as they are   of A,  [k/R][m/S]   n

Matrices larger than the array are cut into pieces. One piece takes 2R + S + steps - 2 cycles: R to move the kept values
in (or out), `steps` for the stream, R + S - 2 until its last value has reached the far corner. A piece that is smaller
than the array takes as long.

Pieces overlap, as in Google's TPU (Jouppi et al., ISCA 2017): every cell has a spare register. While one piece
streams, the weights of the next move into the spare ones, or the sums of the one before move out of them, and the next
stream follows directly behind. From piece to piece it then takes as long as the slower of the two, max(steps, R).
"""

import numpy as np

from d2lmini.reuse.array_cost import Cost, known, timetable
from d2lmini.reuse.tiling import CountedMatrix, product_sizes


class Array:
    """A grid of cells, each with four registers, which are masked where they are empty.

    Attributes:
        held [rows, columns]: What stays.
        spare: What will stay next, or stayed before.
        right, down: What moves on to the right and downwards.
        cycles: How many have passed.
        products: Multiplications done by all cells.
        passes: Values handed to a neighbour.
        watch: Called with the array after each cycle.

    Raises:
        ValueError: Fewer than one row or column.
    """

    def __init__(self, rows, columns, dtype=np.float64, watch=None):
        if min(rows, columns) < 1:
            raise ValueError(f"an array has at least 1 row and 1 column, got {rows} × {columns}")
        self.shape, self.dtype, self.watch = (rows, columns), dtype, watch
        self.cycles = self.products = self.passes = 0
        self.held, self.spare, self.right, self.down = (_empty(self.shape, dtype) for _ in range(4))
        self.turn = np.zeros(self.shape, bool)  # where a mark is that tells a cell to go to the next piece

    def shifted(self, register, entering, axis):
        """Return `register` after each value moved on, down (axis 0) or right (axis 1), with `entering` at the edge."""
        staying = register[:-1, :] if axis == 0 else register[:, :-1]
        self.passes += int(staying.count())
        return np.ma.concatenate([np.ma.expand_dims(entering, axis), staying], axis)

    def multiplied(self, x, y):
        """Return the cells' products; zero, and nothing counted, where a cell lacks an operand."""
        products = x * y
        self.products += int(products.count())
        return products.filled(0)

    def tick(self):
        """End a cycle."""
        self.cycles += 1
        if self.watch:
            self.watch(self)


def output_stationary_step(array, from_left, from_above):
    """Do one cycle: A moves right, B moves down, each cell holds a sum."""
    array.right = array.shifted(array.right, from_left, axis=1)
    array.down = array.shifted(array.down, from_above, axis=0)
    array.held = array.held + array.multiplied(array.right, array.down)
    array.tick()


def weight_stationary_step(array, from_left, from_above):
    """Do one cycle: A moves right, sums move down, B is held."""
    array.right = array.shifted(array.right, from_left, axis=1)
    sums = array.shifted(array.down, from_above, axis=0)
    array.down = sums + array.multiplied(array.right, array.held)
    array.tick()


def skewed(stream, lanes, cycles):
    """Return a stream as it enters the array: lane i is i cycles late, and empty before and after.

    Args:
        stream: [steps, ≤ lanes].
        lanes: Of the array.
        cycles: How many the result has.

    Returns:
        [cycles, lanes], masked where empty.
    """
    return in_turn([stream], lanes, cycles, [0])


def in_turn(streams, lanes, cycles, starts):
    """Return streams as `skewed` does, each from its start on: where the distance is its length, there is no gap."""
    entering = _empty((cycles, lanes), streams[0].dtype)
    for stream, start in zip(streams, starts, strict=True):
        for lane in range(stream.shape[1]):
            entering[start + lane : start + lane + len(stream), lane] = stream[:, lane]
    return entering


def take_weights(array, marks, weights):
    """Let marked cells use the spare weight; then `weights` [columns] enter the spare registers from above.

    A weight that enters pushes down the one that waits there, so the last row's comes first.
    """
    _turn(array, marks)
    array.held = np.ma.where(array.turn, array.spare, array.held)
    array.spare[array.turn] = np.ma.masked
    above = np.ma.concatenate([weights[np.newaxis], array.spare[:-1]])
    moving = np.logical_and.accumulate(~np.ma.getmaskarray(above))  # a gap ends the push
    array.passes += int(moving[1:].sum())
    array.spare = np.ma.where(moving, above, array.spare)


def release_sums(array, marks):
    """Let whole sums in spare registers move down where there is room; then marked cells put theirs there."""
    _turn(array, marks)
    multiplied = ~np.ma.getmaskarray(array.right) & ~np.ma.getmaskarray(array.down)  # in the cycle before
    whole = array.turn & multiplied
    for row in reversed(range(array.shape[0])):  # from below: a sum moves into the room that the one before it left
        moving = ~np.ma.getmaskarray(array.spare[row])
        if row + 1 < array.shape[0]:
            moving &= np.ma.getmaskarray(array.spare[row + 1]) & ~whole[row + 1]
            array.spare[row + 1] = np.ma.where(moving, array.spare[row], array.spare[row + 1])
            array.passes += int(moving.sum())
        array.spare[row, moving] = np.ma.masked
    array.spare = np.ma.where(whole, array.held, array.spare)
    array.held[array.turn] = 0


def output_stationary(A, B, C, array, overlap):
    """Store A B in C: a piece of C stays in the array until its sums are complete."""
    m, n, k = product_sizes(A, B, C)
    rows, columns = array.shape
    pieces = [(slice(i, i + rows), slice(j, j + columns)) for i in range(0, m, rows) for j in range(0, n, columns)]
    starts, cycles = timetable(len(pieces), k, rows, columns, overlap)
    left = in_turn([A[down, :].T for down, _ in pieces], rows, cycles, starts)
    above = in_turn([B[:, across] for _, across in pieces], columns, cycles, starts)
    marks = _marks(rows, cycles, [start + k for start in starts])
    leaving = [[] for _ in range(columns)]
    array.held[:] = 0
    for mark, from_left, from_above in zip(marks, left, above):
        release_sums(array, mark)
        output_stationary_step(array, from_left, from_above)
        _collect(leaving, array.spare[-1])
    for down, across in pieces:
        last_row_first = _take(leaving, len(range(m)[down]), len(range(n)[across]))
        C[down, across] = last_row_first[::-1]


def weight_stationary(A, B, C, array, overlap):
    """Store A B in C: a piece of B stays in the array while all of A passes; sums of pieces are added in memory."""
    m, n, k = product_sizes(A, B, C)
    rows, columns = array.shape
    pieces = [(slice(p, p + rows), slice(j, j + columns)) for j in range(0, n, columns) for p in range(0, k, rows)]
    loads, cycles = timetable(len(pieces), m, rows, columns, overlap)
    starts = [load + rows for load in loads]
    weights = in_turn([B[piece][::-1] for piece in pieces], columns, cycles, loads)
    left = in_turn([A[:, down] for down, _ in pieces], rows, cycles, starts)
    nothing = [np.zeros((m, len(range(n)[across])), array.dtype) for _, across in pieces]
    above, marks = in_turn(nothing, columns, cycles, starts), _marks(rows, cycles, starts)
    leaving = [[] for _ in range(columns)]
    for mark, entering, from_left, from_above in zip(marks, weights, left, above):
        take_weights(array, mark, entering)
        weight_stationary_step(array, from_left, from_above)
        _collect(leaving, array.down[-1])
    for down, across in pieces:
        sums = _take(leaving, m, len(range(n)[across]))
        C[:, across] = sums + C[:, across] if down.start else sums


def multiply(A, B, rows, columns, dataflow, watch=None, overlap=True):
    """Return A B, computed by an array of rows × columns cells, its `Cost`, and the passes between neighbours.

    Args:
        A: An array [m, k] of numbers.
        B: An array [k, n].
        rows, columns: Of the array.
        dataflow: A name in `DATAFLOWS`.
        watch: Called with the `Array` after each cycle.
        overlap: Whether a piece begins before the one before it is complete.

    Raises:
        ValueError: Shapes that do not fit, or an unknown dataflow.
    """
    A, B = CountedMatrix(A), CountedMatrix(B)
    C = CountedMatrix(np.zeros((A.shape[0], B.shape[1]), np.result_type(A.values, B.values)))
    sizes = product_sizes(A, B, C)
    if known(dataflow) == "input":  # the same machine at work on (A B)ᵀ = Bᵀ Aᵀ, where A is the weight
        product, did, passes = multiply(B.values.T, A.values.T, rows, columns, "weight", watch, overlap)
        return product.T, did.transposed(), passes
    array = Array(rows, columns, C.values.dtype, watch)
    if all(sizes):  # else there is nothing to do
        {"output": output_stationary, "weight": weight_stationary}[dataflow](A, B, C, array, overlap)
    utilisation = array.products / (array.cycles * rows * columns) if array.cycles else 0.0
    return C.values, Cost(array.cycles, A.reads, B.reads, C.reads, C.writes, utilisation), array.passes


def _turn(array, marks):
    array.turn = np.concatenate([marks[:, np.newaxis], array.turn[:, :-1]], axis=1)


def _marks(rows, cycles, starts):
    """Return when a mark enters each row [cycles, rows], True or False: with the first value of a stream, or after."""
    marks = in_turn([np.ones((1, rows), bool)] * len(starts), rows, cycles, starts)
    return marks.filled(False)


def _collect(leaving, bottom):
    for column, value in zip(leaving, bottom):
        if value is not np.ma.masked:
            column.append(value)


def _take(leaving, steps, columns):
    """Return the next `steps` values that left each of the first columns, as a matrix [steps, columns]."""
    taken = [leaving[s][:steps] for s in range(columns)]
    for s in range(columns):
        del leaving[s][:steps]
    return np.transpose(taken)


def _empty(shape, dtype):
    return np.ma.array(np.zeros(shape, dtype), mask=True)
