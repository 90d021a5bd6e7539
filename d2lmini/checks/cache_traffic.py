"""The check of the lab on a cache's traffic: a product's loops, judged by the elements that a modelled cache moves."""

from itertools import product as places

from d2lmini.checks.mechanism import Wrong, attempt, check, scored
from d2lmini.reuse.cache_model import Cache, Cached
from d2lmini.reuse.tiling import fewest_words

LINES, LINE, EDGE = 32, 8, 32  # the cache and the matrices that are judged
MOST, BOOK = 9000, 8192  # what the lab asks for, and what the book's answer reaches, in elements
OTHER, OTHER_MOST = (24, 48, 40), 13000  # another size, where as good an order keeps below as good a limit
VARIABLES = 8  # numbers that a program may hold at once


@check
def few_words(function):
    """``function(A, B, C)``: A B added to C, through a cache, with few elements moved between it and memory."""
    for m, n, k in ((2, 3, 4), (1, 1, 1), (17, 9, 10), (8, 20, 3)):
        _words(function, m, n, k)
    moved, given = _words(function, EDGE, EDGE, EDGE), f"matrices of {EDGE} × {EDGE}"
    fewest = fewest_words(EDGE, EDGE, EDGE, LINES * LINE + VARIABLES)
    if moved < fewest:
        raise Wrong(f"{given}: {moved:,} elements are moved, fewer than any order can ({fewest:,.0f})")
    told = scored("few-words", moved, BOOK, "elements are moved", ",.0f")
    if moved >= MOST:
        raise Wrong(f"{given}: the product is right, but {told}; bring it below {MOST:,}")
    if (moved := _words(function, *OTHER)) >= OTHER_MOST:
        m, n, k = OTHER
        raise Wrong(
            f"{given}: {told}, but [{m}, {k}] × [{k}, {n}] moves {moved:,}, and should stay below {OTHER_MOST:,}: the "
            "order should be good for any size"
        )
    return f"{given}: the product is right, and {told}"


class _Number:
    """An element in a variable: it counts how many there are, and how many products were made of them."""

    __slots__ = ("program", "value")

    def __init__(self, value, program):
        self.value, self.program = value, program
        program.held += 1
        program.most = max(program.most, program.held)

    def __del__(self):
        self.program.held -= 1

    def _with(self, other):
        return other.value if isinstance(other, _Number) else other

    def __add__(self, other):
        return _Number(self.value + self._with(other), self.program)

    def __mul__(self, other):
        self.program.products += isinstance(other, _Number)
        return _Number(self.value * self._with(other), self.program)

    __radd__, __rmul__ = __add__, __mul__


class _Program:
    """What a program holds in variables now and at most, and its products."""

    held = most = products = 0


class _Watched:
    """A matrix behind the cache whose elements come as `_Number`."""

    def __init__(self, matrix, program):
        self._matrix, self._program, self.shape = matrix, program, matrix.shape

    def __getitem__(self, index):
        found = self._matrix[index]
        kind = _Watched if isinstance(found, Cached) else _Number
        return kind(found, self._program)

    def __setitem__(self, index, value):
        self._matrix[index] = value.value if isinstance(value, _Number) else value


def _words(function, m, n, k):
    """Return how many elements a right program moves for A [m, k], B [k, n]."""
    given, cache, program = f"[{m}, {k}] × [{k}, {n}]", Cache(LINES, LINE), _Program()
    a = [[3 * i + p + 1 for p in range(k)] for i in range(m)]
    b = [[100 * p + j + 7 for j in range(n)] for p in range(k)]
    c = [[11 * i + j + 5 for j in range(n)] for i in range(m)]
    A, B, C = (cache.matrix(rows) for rows in (a, b, [list(row) for row in c]))
    attempt(lambda: function(*(_Watched(X, program) for X in (A, B, C))) or True, given=given)
    cache.flush()
    for i, j in places(range(m), range(n)):
        added = sum(a[i][p] * b[p][j] for p in range(k))
        if C.rows[i][j] != c[i][j] + added:
            told = f"C[{i}, {j}] held {c[i][j]} and should be {c[i][j] + added}, it is {C.rows[i][j]}"
            hint = ": add to what is there" if C.rows[i][j] == added else ""
            raise Wrong(f"{given}: {told}{hint}")
    if program.most > VARIABLES:
        raise Wrong(
            f"{given}: the product is right, but {program.most} numbers were in variables at once; at most "
            f"{VARIABLES} are allowed, so read the others through the cache when they are needed"
        )
    if 2 * program.products < m * n * k:
        raise Wrong(f"{given}: {program.products} products of elements of A and B, expected {m * n * k}")
    return cache.words
