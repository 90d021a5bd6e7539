"""Loops whose only work is to touch memory, compiled by Numba: in Python they would measure the interpreter.

`chase` reads one address after the other, each read from the one before: its time is latency. `read` and `triad` go
through arrays in order, as fast as the core can: their time is bandwidth. What is compiled stands here.
"""

import functools

from d2lmini.reuse import loop_order

ARRAYS = {"read": 1, "triad": 3}  # how many a loop goes through; a step reads or writes an element of each


def chase(order, at, steps):
    """Follow `order` from `at` for so many steps; return where that ends.

    Each load waits for the one before: it does not know its address yet.
    """
    for _ in range(steps):
        at = order[at]
    return at


def chase_many(order, places, steps):
    """Follow several chains at once, one from each of `places`, `steps` loads each; none waits for another."""
    for _ in range(steps):
        for k in range(len(places)):
            places[k] = order[places[k]]


def read(a, passes):
    """Return the sum of the array `a`, read `passes` times."""
    total = a[0] * 0
    for _ in range(passes):
        for i in range(len(a)):
            total += a[i]
    return total


def triad(a, b, c, scale, passes):
    """Set a = b + scale × c, as STREAM's triad does (McCalpin, 1995)."""
    for _ in range(passes):
        for i in range(len(a)):
            a[i] = b[i] + scale * c[i]


@functools.cache
def compiled(name):
    """Return one of the loops above in machine code, with vector instructions; it lets other threads run meanwhile.

    Places are unsigned numbers: for others Python's rule for negative ones would add work to every load. Arrays are of
    float64. Raises what `loop_order.compiled` raises.
    """
    loop, signature = {
        "chase": (chase, "uint64(uint64[::1], uint64, int64)"),
        "chase_many": (chase_many, "void(uint64[::1], uint64[::1], int64)"),
        "read": (read, "float64(float64[::1], int64)"),
        "triad": (triad, "void(float64[::1], float64[::1], float64[::1], float64, int64)"),
    }[name]
    return loop_order.compiled(loop, signature, nogil=True, fastmath=True)
