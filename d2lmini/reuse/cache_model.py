"""A modelled cache: lines, the least recently used one goes first, and every miss and every write-back counts.

It is small and slow, and it is exact: loops that index `Cached` matrices touch the cache element by element, in the
order in which a program would.
"""

from collections import OrderedDict


class Cache:
    """A cache with the least recently used line thrown out first; what is written stays until its line is thrown out.

    Args:
        lines: How many lines it has.
        line: Elements of a line.
        ways: How many lines may hold a given address: all of them (default) is a fully associative cache, 1 a directly
            mapped one.

    Attributes:
        misses: Lines fetched.
        write_backs: Changed lines stored.

    Raises:
        ValueError: Sizes below 1, or ways that do not divide the lines.
    """

    def __init__(self, lines, line=8, ways=None):
        ways = lines if ways is None else ways
        if min(lines, line, ways) < 1 or lines % ways:
            raise ValueError(f"expected at least 1 line, element and way, ways dividing lines: {lines}, {line}, {ways}")
        self.line, self.ways = line, ways
        self.sets = [OrderedDict() for _ in range(lines // ways)]  # of line number -> whether it was changed
        self.misses = self.write_backs = self.allocated = 0

    def touch(self, address, write):
        """Read or write the element at `address`: fetch its line if it is not here, for which the oldest one goes."""
        number = address // self.line
        held = self.sets[number % len(self.sets)]
        if number not in held:
            self.misses += 1
            if len(held) == self.ways:
                _, changed = held.popitem(last=False)
                self.write_backs += changed
            held[number] = write
        elif write:
            held[number] = True
        held.move_to_end(number)

    def flush(self):
        """Empty the cache, storing what was changed."""
        for held in self.sets:
            self.write_backs += sum(held.values())
            held.clear()

    @property
    def words(self):
        """Elements moved between cache and memory so far: whole lines, in both directions."""
        return (self.misses + self.write_backs) * self.line

    def matrix(self, values):
        """Put a list of rows, or a matrix, into the memory behind this cache, at the start of a line."""
        rows = values.tolist() if hasattr(values, "tolist") else [list(row) for row in values]
        base, columns = self.allocated, len(rows[0]) if rows else 0
        self.allocated += -(-len(rows) * columns // self.line) * self.line
        return Cached(self, rows, base, (len(rows), columns))


class Cached:
    """A matrix, stored row after row, behind a `Cache`: ``X[i, j]`` goes through it, ``X[a:b, c:d]`` is a view."""

    def __init__(self, cache, rows, base, shape, corner=(0, 0)):
        """Be the part of `rows`, which begin at address `base`, that starts at `corner` and has `shape`."""
        self.cache, self.rows, self.base, self.shape, self.corner = cache, rows, base, shape, corner
        self.columns = len(rows[0]) if rows else 0

    def __getitem__(self, index):
        i, j = index
        if isinstance(i, slice):
            (top, bottom, _), (left, right, _) = i.indices(self.shape[0]), j.indices(self.shape[1])
            corner = (self.corner[0] + top, self.corner[1] + left)
            return Cached(self.cache, self.rows, self.base, (max(0, bottom - top), max(0, right - left)), corner)
        i, j = self._place(i, j)
        self.cache.touch(self.base + i * self.columns + j, False)
        return self.rows[i][j]

    def __setitem__(self, index, value):
        i, j = self._place(*index)
        self.cache.touch(self.base + i * self.columns + j, True)
        self.rows[i][j] = value

    def _place(self, i, j):
        if not (0 <= i < self.shape[0] and 0 <= j < self.shape[1]):
            raise IndexError(f"element [{i}, {j}] of a matrix of shape {[*self.shape]}")
        return i + self.corner[0], j + self.corner[1]
