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


def by_level(points, caches=None, pick=_largest):
    """Return name -> `Point`: one for each cache and the largest one, "main memory" if it must be there.

    A cache's is what `pick` takes of those up to the geometric mean of its size and that of the cache before, the
    middle of its step on an axis that grows by factors: nearer to the end a part of the loads goes to the next level.
    For the first cache they go up to half of it. A level is left out where no point can stand for it. The largest
    working set is "largest set" where it is not ROOM times the last cache. `caches` are this machine's unless given.
    """
    caches, found, before = host.caches() if caches is None else caches, {}, 0
    for cache in caches:
        middle = math.sqrt(before * cache.nbytes) or cache.nbytes / 2
        fitting = pick([point for point in points if before < point.nbytes <= middle])
        if fitting:
            found[f"L{cache.level}"] = fitting
        before = cache.nbytes
    largest = _largest(points)
    certain = caches and largest.nbytes >= ROOM * caches[-1].nbytes
    return found | {"main memory" if certain else "largest set": largest}


def answered(points, caches=None):
    """Return what `by_level` finds in the points of `latency`, of each cache only what it answered itself.

    Those points do not count where a load takes more than half of the time of the largest set. Too many of the loads
    then went to main memory, whatever size the system gives the cache: others use it too, or addresses are slow to
    translate. Nor do those that are much slower than the next smaller set: they mix this level's loads with those of
    the next. The shortest runs are compared, for what disturbs a run only lengthens it.
    """
    largest = _largest(points)
    near = [point for point in points if _shortest(point) <= _shortest(largest) / 2]
    return by_level([*near, largest], caches, _on_a_plateau)


def contrast(points, caches=None):
    """Say in a sentence how many times the bandwidth of main memory the first cache has, or why that can't be told."""
    caches = host.caches() if caches is None else caches
    if not caches:
        return "can't tell: the system says nothing of its caches"
    first, last, found = f"L{caches[0].level}", caches[-1], by_level(points, caches)
    if first not in found:
        return f"can't tell: no working set fits into half of {first}, {size(caches[0].nbytes)}"
    near, far = found[first], found.get("main memory") or found["largest set"]
    if far.nbytes <= last.nbytes:
        return (
            f"can't tell: the largest working set, {size(far.nbytes)}, is not over L{last.level}, {size(last.nbytes)}"
        )
    rates = f"{near.bytes_per_s / 1e9:.1f} against {far.bytes_per_s / 1e9:.1f} GB/s"
    if "main memory" not in found:
        rates += f", though L{last.level}, {size(last.nbytes)}, may hold a part of {size(far.nbytes)}"
    if near.seconds.interval[1] >= far.seconds.interval[0]:
        return f"no difference was measurable between {first} and main memory: {rates}"
    return f"{first} moves {near.bytes_per_s / far.bytes_per_s:.1f} times as many bytes a second as memory: {rates}"


def doubts(points, caches=None):
    """Return sentences about caches that a chase does not find as the system tells them; [] where there is no doubt.

    points: those of `latency`. Half of the last cache, if it were all ours, would be much faster than the largest set.
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
