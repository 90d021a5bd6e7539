EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("the last row of tiles is dropped", "range(0, m, tile)", "range(0, m - tile + 1, tile)"),
    ("only the last term is kept", "total = total + ", "total = "),
    ("a is fetched twice", "a = A[rows, p : p + 1]", "a = A[rows, p : p + 1] * 0 + A[rows, p : p + 1]"),
    ("the counting memory is bypassed", "b = B[p : p + 1, columns]", "b = B.values[p : p + 1, columns]"),
]


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


def register_tile(A, B, C, tile):
    """Every sum stays in a register until the end."""
    import numpy as np

    (m, n), k = C.shape, A.shape[1]
    sums = np.zeros((m, n))
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            for p in range(k):
                sums[i : i + tile, j : j + tile] += A[i : i + tile, p : p + 1] * B[p : p + 1, j : j + tile]
    C[:, :] = sums


def register_tile(A, B, C, tile):
    """The first tile is stored at once; all other sums stay in registers until the end."""
    (m, n), k = C.shape, A.shape[1]
    kept = []
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            rows, columns = slice(i, i + tile), slice(j, j + tile)
            kept.append((rows, columns, sum(A[rows, p : p + 1] * B[p : p + 1, columns] for p in range(k))))
            if len(kept) == 1:
                C[rows, columns] = kept[0][2]
    for rows, columns, total in kept[1:]:
        C[rows, columns] = total


def register_tile(A, B, C, tile):
    """All columns of A and rows of B that a tile needs are put together first, in registers that are not there."""
    import numpy as np

    (m, n), k = C.shape, A.shape[1]
    for i in range(0, m, tile):
        for j in range(0, n, tile):
            a = np.hstack([A[i : i + tile, p : p + 1] for p in range(k)])
            C[i : i + tile, j : j + tile] = a @ np.vstack([B[p : p + 1, j : j + tile] for p in range(k)])
