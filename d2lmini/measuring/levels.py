"""What measured points say about the levels of the memory hierarchy, and where they can't tell."""

import math
from itertools import pairwise

from d2lmini import host
from d2lmini.measuring.memory_hierarchy import ROOM

STEEP = 1.25  # where a load takes more than this times what it takes in the next smaller set, the curve climbs


def _largest(points):
    return max(points, key=lambda point: point.nbytes, default=None)


def _shortest(point):
    return min(point.seconds.seconds)


def _on_a_plateau(points):
    """Return the largest point that is no `STEEP` step above the next smaller one, None if each of them is.

    A single point has nothing to be compared with and stands.
    """
    rising = sorted(points, key=lambda point: point.nbytes)
    flat = [b for a, b in pairwise(rising) if _shortest(b) <= STEEP * _shortest(a)]
    return _largest(rising if len(rising) == 1 else flat)


def answered(points, caches=None):
    """Return which point stands for each level of the memory hierarchy: how long a load from there takes.

    A cache answers a working set that fits. Nearer to its size a part of the loads goes to the next level, so that only
    sets up to the geometric mean of its size and that of the cache before count, for the first cache up to half of it.
    Sets do not count in which a load takes more than half of the time of the largest set: too many of the loads went to
    main memory, whatever size the system gives the cache. Nor do those that are much slower than the next smaller set.
    The shortest runs are compared, for what disturbs a run only lengthens it.

    Args:
        points: Those of `memory_hierarchy.latency`.
        caches: This machine's unless given.

    Returns:
        Name of the level -> `Point`. A cache is left out where no point can stand for it. The largest set is "main
        memory" where it is at least ROOM times the last cache, else "largest set".
    """
    caches, found, before, largest = host.caches() if caches is None else caches, {}, 0, _largest(points)
    for cache in caches:
        middle = math.sqrt(before * cache.nbytes) or cache.nbytes / 2
        fits = [point for point in points if before < point.nbytes <= middle]
        fitting = _on_a_plateau([point for point in fits if _shortest(point) <= _shortest(largest) / 2])
        if fitting:
            found[f"L{cache.level}"] = fitting
        before = cache.nbytes
    certain = caches and largest.nbytes >= ROOM * caches[-1].nbytes
    return found | {"main memory" if certain else "largest set": largest}


def doubts(points, caches=None):
    """Return sentences on caches that the measured latencies do not show as the system reports them; [] for no doubt.

    If the last cache were this program's alone, a load from half of it would be much faster than one from main memory.

    Args:
        points: Those of `memory_hierarchy.latency`.
        caches: This machine's unless given.
    """
    said = list(_doubts(points, host.caches() if caches is None else caches))
    if said and host.virtual():
        said.append("this is a virtual machine, which shows what its owner configured")
    return said


def _doubts(points, caches):
    if not caches:
        yield "the system says nothing of its caches"
        return
    largest, last = _largest(points), caches[-1]
    told = f"L{last.level} is said to have {size(last.nbytes)}"
    if largest.nbytes < ROOM * last.nbytes:
        yield (
            f"{told}: even the largest working set, {size(largest.nbytes)}, is not {ROOM} times that, and part of "
            "it may stay there"
        )
    half = _largest(point for point in points if point.nbytes <= last.nbytes / 2)
    if half and largest.nbytes > last.nbytes and half.seconds.median > largest.seconds.median / 2:
        yield (
            f"{told}, but in {size(half.nbytes)} a load takes {half.seconds.median / largest.seconds.median:.0%} of "
            "main memory's time: others share it, it is smaller than told, or addresses are slow to "
            "translate"
        )


def size(nbytes):
    """Return a number of bytes in the unit that reads best: ``'48 KiB'`` for 49152."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= one:
            return f"{nbytes / one:.4g} {unit}"
    return f"{nbytes} bytes"
