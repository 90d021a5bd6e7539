"""A systolic array, cycle by cycle: processing elements in a grid, each handing what it has to one neighbour a cycle.

After H. T. Kung, "Why systolic architectures?", Computer 15(1), 1982: what was read from memory once passes through
many elements and is used in each. Three dataflows for C = A B, named after what an element keeps, for an array of
R × S elements (A holds the inputs of a layer, B its weights):

    dataflow   element (r, s) keeps   moves right   moves down   results leave       pieces            steps
    output     a sum of C             A             B            at the end, below   of C,  [m/R][n/S]   k
    weight     an element of B        A             sums of C    below, as they are  of B,  [k/R][n/S]   m
    input      an element of A        B             sums of C    below, as they are  of A,  [k/R][m/S]   n

Matrices larger than the array are cut into pieces. Each piece takes 2R + S + steps - 2 cycles: R to move the kept
values in (or out), `steps` for the stream, R + S - 2 until its last value has reached the far corner. A piece that is
smaller than the array takes as long. Real arrays load one piece while they work on another; this one does not.
"""

from dataclasses import dataclass

import numpy as np

from d2lmini.reuse.tiling import CountedMatrix, product_sizes

DATAFLOWS = ("output", "weight", "input")


class Array:
    """A grid of processing elements, each with three registers, which are masked where they are empty.

    held [rows, columns]: what stays. right, down: what moves on to the right and downwards. `cycles`, `products` (done
    by all elements) and `passes` (values handed to a neighbour) are counted. watch: called with the array after each
    cycle. Raises ValueError for fewer than one row or column.
    """

    def __init__(self, rows, columns, dtype=np.float64, watch=None):
        """Make an array with empty registers."""
        if min(rows, columns) < 1:
            raise ValueError(f"an array has at least 1 row and 1 column, got {rows} × {columns}")
        self.shape, self.dtype, self.watch = (rows, columns), dtype, watch
        self.cycles = self.products = self.passes = 0
        self.clear()

    def clear(self):
        """Empty all registers."""
        self.held, self.right, self.down = (_empty(self.shape, self.dtype) for _ in range(3))

    def shifted(self, register, entering, axis):
        """Return `register` after each value moved on, down (axis 0) or right (axis 1), with `entering` at the edge."""
        staying = register[:-1, :] if axis == 0 else register[:, :-1]
        self.passes += int(staying.count())
        return np.ma.concatenate([np.ma.expand_dims(entering, axis), staying], axis)

    def multiplied(self, x, y):
        """Return the elements' products; zero, and nothing counted, where an element lacks an operand."""
        products = x * y
        self.products += int(products.count())
        return products.filled(0)

    def tick(self):
        """End a cycle."""
        self.cycles += 1
        if self.watch:
            self.watch(self)


def output_stationary_step(array, from_left, from_above):
    """Do one cycle: A moves right, B moves down, each element holds a sum."""
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
    """Return `stream` [steps, ≤ lanes] as it enters the array [cycles, lanes]: lane i is i cycles late, else empty."""
    entering = _empty((cycles, lanes), stream.dtype)
    for lane in range(stream.shape[1]):
        entering[lane : lane + len(stream), lane] = stream[:, lane]
    return entering


def load(array, values):
    """Move `values` into the held registers from above, the last row first, one row a cycle."""
    rows = _empty(array.shape, array.dtype)
    rows[: values.shape[0], : values.shape[1]] = values
    for row in rows[::-1]:
        array.held = array.shifted(array.held, row, axis=0)
        array.tick()


def drain(array):
    """Move what is held out below, one row a cycle, and return it as it was [rows, columns]."""
    array.right, array.down = (_empty(array.shape, array.dtype) for _ in range(2))  # the last operands left the array
    rows, nothing = [], _empty(array.shape[1], array.dtype)
    for _ in range(array.shape[0]):
        rows.insert(0, array.held[-1])
        array.held = array.shifted(array.held, nothing, axis=0)
        array.tick()
    return np.ma.stack(rows)


def output_stationary(A, B, C, array):
    """Store A B in C: a piece of C stays in the array until its sums are complete."""
    m, n, k = product_sizes(A, B, C)
    rows, columns = array.shape
    cycles = k + rows + columns - 2
    for i in range(0, m, rows):
        for j in range(0, n, columns):
            a, b = A[i : i + rows, :], B[:, j : j + columns]
            array.held[: len(a), : b.shape[1]] = 0  # all registers are empty: they were drained
            for left, above in zip(skewed(a.T, rows, cycles), skewed(b, columns, cycles)):
                output_stationary_step(array, left, above)
            C[i : i + rows, j : j + columns] = drain(array)[: len(a), : b.shape[1]]


def weight_stationary(A, B, C, array):
    """Store A B in C: a piece of B stays in the array while all of A passes; sums go through memory between pieces."""
    m, n, k = product_sizes(A, B, C)
    rows, columns = array.shape
    cycles = m + rows + columns - 2
    for j in range(0, n, columns):
        for p in range(0, k, rows):
            array.clear()
            load(array, B[p : p + rows, j : j + columns])
            width = min(columns, n - j)
            sums = C[:, j : j + columns] if p else np.zeros((m, width), array.dtype)
            left, above, below = skewed(A[:, p : p + rows], rows, cycles), skewed(sums, columns, cycles), []
            for from_left, from_above in zip(left, above):
                weight_stationary_step(array, from_left, from_above)
                below.append(array.down[-1])
            for s in range(width):  # the sum of row i leaves column s in cycle i + rows - 1 + s
                C[:, j + s] = [below[i + rows - 1 + s][s] for i in range(m)]


def input_stationary(A, B, C, array):
    """Store A B in C: the elements hold A. It is the same machine at work on (A B)ᵀ = Bᵀ Aᵀ, where A is the weight."""
    weight_stationary(_Transposed(B), _Transposed(A), _Transposed(C), array)


@dataclass(frozen=True)
class Cost:
    """What a product costs on an array. reads, writes: elements from and to memory, by matrix, partial sums among them.

    utilisation: multiplications done ÷ those that all elements could have done in these cycles; 0 for no cycles.
    """

    cycles: int
    reads_A: int
    reads_B: int
    reads_C: int
    writes_C: int
    utilisation: float

    @property
    def traffic(self):
        """Elements moved between the array and memory, in both directions."""
        return self.reads_A + self.reads_B + self.reads_C + self.writes_C


def multiply(A, B, rows, columns, dataflow, watch=None):
    """Return A B, computed by an array of rows × columns elements, its `Cost`, and the passes between neighbours.

    A [m, k] and B [k, n] are arrays of numbers; dataflow is one of `DATAFLOWS`; `watch` is called with the `Array`
    after each cycle. Raises ValueError for shapes that do not fit and for an unknown dataflow.
    """
    run = {"output": output_stationary, "weight": weight_stationary, "input": input_stationary}.get(_known(dataflow))
    A, B = CountedMatrix(A), CountedMatrix(B)
    C = CountedMatrix(np.zeros((A.shape[0], B.shape[1]), np.result_type(A.values, B.values)))
    array = Array(rows, columns, C.values.dtype, watch)
    run(A, B, C, array)
    utilisation = array.products / (array.cycles * rows * columns) if array.cycles else 0.0
    return C.values, Cost(array.cycles, A.reads, B.reads, C.reads, C.writes, utilisation), array.passes


def cost(m, n, k, rows, columns, dataflow):
    """Return the `Cost` of a product [m, k] × [k, n] by formula, without computing it; raises ValueError as above."""
    if _known(dataflow) == "input":  # the transposed product, with the roles of A and B exchanged
        other = cost(n, m, k, rows, columns, "weight")
        return Cost(other.cycles, other.reads_B, other.reads_A, other.reads_C, other.writes_C, other.utilisation)
    down, across = (m if dataflow == "output" else k), n
    pieces_down, pieces_across = -(-down // rows), -(-across // columns)
    cycles = pieces_down * pieces_across * (2 * rows + columns + (k if dataflow == "output" else m) - 2)
    utilisation = m * n * k / (cycles * rows * columns) if cycles else 0.0
    if dataflow == "output":
        return Cost(cycles, m * k * pieces_across, k * n * pieces_down, 0, m * n, utilisation)
    return Cost(cycles, m * k * pieces_across, k * n, m * n * max(0, pieces_down - 1), m * n * pieces_down, utilisation)


def _known(dataflow):
    if dataflow not in DATAFLOWS:
        raise ValueError(f"unknown dataflow {dataflow!r}: choose one of {', '.join(DATAFLOWS)}")
    return dataflow


class _Transposed:
    """A matrix in memory, seen as its transpose; what is fetched and stored is counted there."""

    def __init__(self, memory):
        self.memory, self.shape = memory, memory.shape[::-1]

    def __getitem__(self, index):
        return self.memory[index[::-1]].T

    def __setitem__(self, index, part):
        self.memory[index[::-1]] = np.transpose(part)


def _empty(shape, dtype):
    return np.ma.array(np.zeros(shape, dtype), mask=True)
