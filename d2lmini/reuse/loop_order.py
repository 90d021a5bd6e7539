"""The matrix product as three nested loops, in two orders and in tiles: run by Python to count, by Numba to measure.

All of them add A B to C, which must be given as zeros for the product itself. They do the same multiplications, and
each element of C gets its terms in the same order. What differs is which elements are used soon after one another.
The arguments are NumPy arrays or anything indexed like them: `cache_model.Cached` counts what a cache would do.
"""


def loops_ijk(A, B, C):
    """Add A B to C; the inner loop goes down a column of B."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(m):
        for j in range(n):
            total = C[i, j]
            for p in range(k):
                total += A[i, p] * B[p, j]
            C[i, j] = total


def loops_ikj(A, B, C):
    """Add A B to C; the inner loop goes along a row of B and one of C."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(m):
        for p in range(k):
            a = A[i, p]
            for j in range(n):
                C[i, j] += a * B[p, j]


def loops_tiled(multiply, A, B, C, tile):
    """Add A B to C by `multiply`, one of the above, on square tiles."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            c = C[i : i + tile, j : j + tile]
            for p in range(0, k, tile):
                a = A[i : i + tile, p : p + tile]
                b = B[p : p + tile, j : j + tile]
                multiply(a, b, c)


def loops_packed(multiply, A, B, C, tile):
    """Do the same, copying tiles first: their rows then lie side by side, as in a GPU's shared memory."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            c = C[i : i + tile, j : j + tile].copy()
            for p in range(0, k, tile):
                a = A[i : i + tile, p : p + tile].copy()
                b = B[p : p + tile, j : j + tile].copy()
                multiply(a, b, c)
            C[i : i + tile, j : j + tile] = c


def compiled(function, *signature, **options):
    """Return `function` compiled for this machine by Numba's ``njit(*signature, **options)``.

    Raises:
        RuntimeError: Where Numba is missing or switched off: uncompiled, a loop would measure Python.
    """
    try:
        import numba
    except ImportError as error:
        raise RuntimeError(f"{function.__name__} must be compiled by Numba: pip install numba ({error})") from None
    if numba.config.DISABLE_JIT:
        raise RuntimeError(f"NUMBA_DISABLE_JIT is set, but {function.__name__} must be compiled: unset it")
    return numba.njit(*signature, **options)(function)
