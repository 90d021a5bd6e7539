"""Wrong answers to the exercise register-tile, which its check must reject."""

EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the last row of tiles is dropped", "range(0, m, tile)", "range(0, m - tile + 1, tile)"),
    ("the last column of tiles is dropped", "range(0, n, tile)", "range(0, n - tile + 1, tile)"),
    ("the last term of each sum is dropped (off by one)", "range(k)", "range(k - 1)"),
    ("the sums of the tile before are kept (stale)", "total = 0", "total = total if j else 0"),
    ("only the last term is kept", "total = total + ", "total = "),
    ("stored after every step", "C[rows, columns] = total", "C[rows, columns] = C[rows, columns] + total"),
    ("a tile is a column too wide", "slice(j, j + tile)", "slice(j, j + tile + 1)"),
    ("a is fetched twice", "a = A[rows, p : p + 1]", "a = A[rows, p : p + 1] * 0 + A[rows, p : p + 1]"),
    ("all of the rows of A at once", "a = A[rows, p : p + 1]", "a = A[rows, :][:, p : p + 1]"),
    ("the counting memory is bypassed", "b = B[p : p + 1, columns]", "b = B.values[p : p + 1, columns]"),
    ("the wrong row of B", "b = B[p : p + 1, columns]", "b = B[k - 1 - p : k - p, columns]"),
    ("nothing is stored", "C[rows, columns] = total", "pass"),
]


def register_tile(A, B, C, tile):
    """One element of C after the other."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(m):
        for j in range(n):
            C[i, j] = sum(A[i, p] * B[p, j] for p in range(k))


def register_tile(A, B, C, tile):
    """Tiles of A and B, which need too many registers."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            total = 0
            for p in range(0, k, tile):
                a = A[i : i + tile, p : p + tile]
                total = total + a @ B[p : p + tile, j : j + tile]
            C[i : i + tile, j : j + tile] = total


def register_tile(A, B, C, tile):
    """Rows of A are kept for the next tile, in registers that are not there."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(0, m, tile):
        kept = [A[i : i + tile, p : p + 1] for p in range(k)]
        for j in range(0, n, tile):
            total = 0
            for p in range(k):
                total = total + kept[p] * B[p : p + 1, j : j + tile]
            C[i : i + tile, j : j + tile] = total
