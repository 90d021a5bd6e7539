"""What measured points say about the levels of the memory hierarchy, and where they can't tell."""

from d2lmini.hardware import host
from d2lmini.measuring.memory_hierarchy import ROOM


def by_level(points, caches=None):
    """Return name -> `Point`: for each cache the largest working set that fills at most half of it, and main memory.

    A level is left out where no point can stand for it. `caches` are this machine's unless given.
    """
    caches, found = host.caches() if caches is None else caches, {}
    for cache in caches:
        fitting = [point for point in points if point.nbytes <= cache.nbytes / 2]
        if fitting:
            found[f"L{cache.level}"] = max(fitting, key=lambda point: point.nbytes)
    largest = max(points, key=lambda point: point.nbytes)
    if caches and largest.nbytes >= ROOM * caches[-1].nbytes:
        found["main memory"] = largest
    return found


def contrast(points, caches=None):
    """Say in a sentence how many times the bandwidth of main memory the first cache has, or why that can't be told."""
    caches = host.caches() if caches is None else caches
    found = by_level(points, caches)
    if not caches:
        return "can't tell: the system says nothing of its caches"
    first = f"L{caches[0].level}"
    if first not in found:
        return f"can't tell: no working set fits into half of {first}, {size(caches[0].nbytes)}"
    if "main memory" not in found:
        largest, last = max(point.nbytes for point in points), caches[-1]
        return (f"can't tell: the largest working set, {size(largest)}, is not {ROOM} times L{last.level}, "
                f"{size(last.nbytes)}, so much of it stays in the cache")  # fmt: skip
    near, far = found[first], found["main memory"]
    rates = f"{near.bytes_per_s / 1e9:.1f} against {far.bytes_per_s / 1e9:.1f} GB/s"
    if near.seconds.interval[1] >= far.seconds.interval[0]:
        return f"no difference was measurable between {first} and main memory: {rates}"
    return f"{first} moves {near.bytes_per_s / far.bytes_per_s:.1f} times as many bytes a second as memory: {rates}"


def doubts(points, caches=None):
    """Return sentences about caches that a chase does not find as the system tells them; [] where there is no doubt.

    points: those of `latency`. Half of the last cache, if it were all ours, would be much faster than main memory.
    """
    caches = host.caches() if caches is None else caches
    found, said = by_level(points, caches), []
    if not caches:
        said.append("the system says nothing of its caches")
    elif "main memory" in found and f"L{caches[-1].level}" in found:
        last = caches[-1]
        near, far = found[f"L{last.level}"], found["main memory"]
        if near.seconds.median > far.seconds.median / 2:
            said.append(f"L{last.level} is said to have {size(last.nbytes)}, but in {size(near.nbytes)} a load takes "
                        f"{near.seconds.median / far.seconds.median:.0%} of main memory's time: others share it, or it "
                        "is smaller than told")  # fmt: skip
    if said and host.virtual():
        said.append("this is a virtual machine, which shows what its owner configured")
    return said


def size(nbytes):
    """Return a number of bytes in the unit that reads best: ``'48 KiB'`` for 49152."""
    for unit, one in (("GiB", 2**30), ("MiB", 2**20), ("KiB", 2**10)):
        if nbytes >= one:
            return f"{nbytes / one:.4g} {unit}"
    return f"{nbytes} bytes"
