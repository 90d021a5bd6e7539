EDITS = [  # what is wrong, text in the worked solution, text to put in its place
    ("tall tiles: a column of A takes 16 lines", "rows, columns = 8, 16", "rows, columns = 16, 8"),
    ("square tiles, as the chapter's", "rows, columns = 8, 16", "rows, columns = 8, 8"),
    ("tiles larger than the cache", "rows, columns = 8, 16", "rows, columns = 16, 16"),
    ("C is replaced (not added to)", "C[i, j] += a * B[p, j]", "C[i, j] = a * B[p, j]"),
    ("the last tile is full, whatever the size", "min(j0 + columns, n)", "j0 + columns"),
    ("remainders are left out", "range(0, m, rows)", "range(0, m - rows + 1, rows)"),
]


def few_words(A, B, C):
    """Everything is fetched once, and lies in variables from then on."""
    (m, n), k = C.shape, A.shape[1]
    a = [[A[i, p] for p in range(k)] for i in range(m)]
    b = [[B[p, j] for j in range(n)] for p in range(k)]
    for i in range(m):
        for j in range(n):
            C[i, j] = sum(a[i][p] * b[p][j] for p in range(k))


def few_words(A, B, C):
    """A row of sixteen sums lies in variables."""
    (m, n), k = C.shape, A.shape[1]
    for i in range(m):
        for j in range(0, n, 16):
            width = min(16, n - j)
            sums = [0] * width
            for p in range(k):
                a = A[i, p]
                sums = [s + a * B[p, j + q] for q, s in enumerate(sums)]
            for q in range(width):
                C[i, j + q] = sums[q]


def few_words(A, B, C):
    """What C held is lost."""
    (m, n), k = C.shape, A.shape[1]
    rows, columns = 8, 16
    for i0, j0 in product(range(0, m, rows), range(0, n, columns)):
        for p in range(k):
            for i in range(i0, min(i0 + rows, m)):
                a = A[i, p]
                for j in range(j0, min(j0 + columns, n)):
                    if p == 0:
                        C[i, j] = a * B[p, j]
                    else:
                        C[i, j] += a * B[p, j]


def few_words(A, B, C):
    """Tiles for the size of the lab's text only."""
    (m, n), k = C.shape, A.shape[1]
    rows, columns = (8, 16) if m == n == k else (1, n)
    for i0, j0 in product(range(0, m, rows), range(0, n, columns)):
        for p in range(k):
            for i in range(i0, min(i0 + rows, m)):
                a = A[i, p]
                for j in range(j0, min(j0 + columns, n)):
                    C[i, j] += a * B[p, j]
