"""The largest batch that fits, found by trying."""


def largest(fits, limit=2**30, good=0):
    """Return the largest n from `good` to `limit` with fits(n).

    fits must hold up to some n and nowhere above; `good` is not tried.
    """
    bad = 2 * good or 1
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
