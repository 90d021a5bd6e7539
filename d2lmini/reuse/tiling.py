"""The matrix product, naive and in tiles, on a memory that counts what is fetched from it.

Each product C = A B does the same m·n·k multiplications. What differs is how often an element of A [m, k] and B [k, n]
is fetched from the slow memory: n and m times when every thread fetches its own row and column, ⌈n / tile_n⌉ and
⌈m / tile_m⌉ times when the threads of a block fetch a tile once, into their shared memory, and all use it.
"""

import math

import numpy as np


class CountedMatrix:
    """A matrix in the slow memory: indexing fetches or stores a copy.

    `reads` and `writes` count the elements of these copies, `nbytes` the
    bytes of both. Raises ValueError unless `values` is a matrix.
    """

    def __init__(self, values):
        """Copy `values` into the slow memory, which counts nothing yet."""
        self.values = np.array(values)
        if self.values.ndim != 2:
            raise ValueError(f"expected a matrix, got {self.values.shape}")
        self.shape = self.values.shape
        self.reads = self.writes = 0

    def __getitem__(self, index):
        """Fetch a copy: what is done with it later costs nothing here."""
        part = np.array(self.values[index])
        self.reads += part.size
        return part

    def __setitem__(self, index, part):
        """Store `part` where `index` says."""
        self.writes += np.size(self.values[index])
        self.values[index] = part

    @property
    def nbytes(self):
        """Bytes fetched and stored so far."""
        return (self.reads + self.writes) * self.values.itemsize


def product_sizes(A, B, C, *tile):
    """Return m, n, k of the product C = A B; raises ValueError for shapes that do not fit and for a tile below 1."""
    (m, k), (inner, n) = A.shape, B.shape
    if k != inner or C.shape != (m, n):
        raise ValueError(f"expected shapes [m, k], [k, n] and [m, n], got {[*A.shape]}, {[*B.shape]} and {[*C.shape]}")
    if any(edge < 1 for edge in tile):
        raise ValueError(f"a tile's edges must be at least 1, got {tile}")
    return m, n, k


def tiled_product(A, B, C, tile_m, tile_n, tile_k):
    """Store A B in C; each block of threads computes a tile of C.

    It fetches tiles of A and B into shared memory, where all of its
    tile_m · tile_n threads use them; the sums stay in registers. Tiles at
    the ends are smaller where the sizes are no multiples.
    """
    m, n, k = product_sizes(A, B, C, tile_m, tile_n, tile_k)
    for i in range(0, m, tile_m):
        for j in range(0, n, tile_n):
            rows, columns = slice(i, i + tile_m), slice(j, j + tile_n)
            total = 0
            for p in range(0, k, tile_k):
                a = A[rows, p : p + tile_k]
                b = B[p : p + tile_k, columns]
                total = total + a @ b
            C[rows, columns] = total


def fewest_words(m, n, k, fast):
    """Return a number of elements that any order of the m·n·k multiplications moves at least, fast memory ↔ slow.

    The bound is 2·m·n·k / √fast - 2·fast, and never below zero.

    Args:
        m, n, k: The product's sizes.
        fast: Elements that the fast memory holds.

    Raises:
        ValueError: A fast memory of less than 1.

    Source: Smith, Lowery, Langou and van de Geijn 2017, arXiv 1702.02017.
    """
    if fast < 1:
        raise ValueError(f"the fast memory must hold at least 1 element, got {fast}")
    return max(0.0, 2 * m * n * k / math.sqrt(fast) - 2 * fast)


def intensity(tile_m, tile_n, itemsize):
    """Return the operations for each byte that a product in tiles fetches; for square tiles, edge / itemsize.

    An operation is a multiplication or an addition; `itemsize` is the bytes of an element. Storing C is left out.

    >>> reuse.intensity(32, 32, itemsize=4)
    8.0
    """
    return 2 / (itemsize * (1 / tile_m + 1 / tile_n))
