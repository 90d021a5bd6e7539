"""The memory hierarchy of this machine: latency, bandwidth, roofline, and whether the figures can be believed.

Run `python benchmarks/memory.py` from the repository's root; `--json FILE` writes what the chapter's recorded figures
are drawn from. Wanted: ladder and sweep in at most 20 s; the sweep's largest working set within 15 % of STREAM's triad
as PyTorch computes it, in turns with it; the fastest set with at least 3 times the bandwidth of the largest.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

from outputs import writable

from d2lmini import host
from d2lmini.measuring import memory_hierarchy, roofline
from d2lmini.measuring.levels import answered, doubts, size
from d2lmini.timing import human, provenance

CHAINS = (1, 2, 4, 8, 16, 32)
PAIRS = 7


def sweep():
    """Return name -> points of the ladder and the sweep, and the seconds that measuring took, compiling included."""
    start = time.perf_counter()
    curves = {
        "random": memory_hierarchy.latency(),
        "in order": memory_hierarchy.latency(visits="in order"),
        "read": memory_hierarchy.bandwidth(kernel="read"),
        "triad": memory_hierarchy.bandwidth(kernel="triad"),
    }
    curves["STREAM by PyTorch"] = [memory_hierarchy.stream(curves["triad"][-1].nbytes)]
    return curves, time.perf_counter() - start


def pairs():
    """Return how many times the bandwidth of PyTorch's triad ours has on the largest working set, and PyTorch's.

    The two take turns, and the middle one of the ratios counts: on a machine shared with others the bandwidth of main
    memory can be half of what it was a second ago, for both.
    """
    nbytes, found = memory_hierarchy.working_sets()[-1], []
    for _ in range(PAIRS):
        ours, other = memory_hierarchy.bandwidth([nbytes], repeat=6)[0], memory_hierarchy.stream(nbytes, repeat=6)
        found.append((ours.bytes_per_s / other.bytes_per_s, other.bytes_per_s))
    return tuple(map(statistics.median, zip(*found, strict=True)))


def chained():
    """Return number of chains -> points, a working set every octave."""
    least = 2 * memory_hierarchy.LINE * max(CHAINS)
    sizes = [nbytes for nbytes in memory_hierarchy.working_sets()[::2] if nbytes >= least]
    rows = [memory_hierarchy.latency_of_chains(CHAINS, nbytes) for nbytes in sizes]
    return {count: [row[place] for row in rows] for place, count in enumerate(CHAINS)}


def show(curves, took):
    """Print the points, the levels, and what is wanted."""
    print(f"{'working set':>12} {'random':>10} {'in order':>10} {'read':>11} {'triad':>11}")
    for points in zip(*(curves[name] for name in ("random", "in order", "read", "triad")), strict=True):
        loads = [f"{human(point.seconds.median):>10}" for point in points[:2]]
        rates = [f"{point.bytes_per_s / 1e9:6.1f} GB/s" for point in points[2:]]
        print(f"{size(points[0].nbytes):>12}", *loads, *rates)
    for name, point in answered(curves["random"]).items():
        print(f"{name}: {point.seconds}")
    print(*doubts(curves["random"]), sep="\n")
    ratio, other = pairs()
    print(
        f"triad at {size(curves['triad'][-1].nbytes)}: {ratio - 1:+.1%} of STREAM by PyTorch, "
        f"{other / 1e9:.1f} GB/s (wanted: within 15 %)"
    )
    for kernel in ("read", "triad"):
        rates = [point.bytes_per_s / 1e9 for point in curves[kernel]]
        print(f"{kernel}: the fastest set has {max(rates) / rates[-1]:.1f} times the bandwidth of the largest")
    print(f"ladder and sweep took {took:.1f} s (wanted: at most 20 s)")


def show_roofline(roof, rows, where):
    """Print the roof and where the operations stand under it."""
    print(
        f"{where}\npeak {roof.flops_per_s / 1e9:.0f} GFLOP/s, {roof.bytes_per_s / 1e9:.1f} GB/s, "
        f"ridge at {roof.ridge:.1f} FLOPs a byte"
    )
    for operation, seconds in rows:
        rate, most = operation.flops / seconds.seconds[0], roof.attainable(operation.intensity)
        print(
            f"{operation.name:16} {operation.intensity:8.2f} FLOPs a byte {rate / 1e9:8.2f} GFLOP/s, "
            f"{rate / most:.0%} of what is attainable"
        )


def plain(points):
    """Return points as JSON can hold them, the seconds with four digits."""
    return [{"nbytes": p.nbytes, "seconds": [float(f"{s:.3e}") for s in p.seconds.seconds]} for p in points]


def main(file=None):
    """Measure, print, and write the curves to `file`."""
    print(provenance(["cpu"]), host.caches(), f"virtual machine: {host.virtual()}", sep="\n")
    curves, took = sweep()
    show(curves, took)
    show_roofline(*roofline.measured())
    if file:
        told = {
            "where": provenance(["cpu"]),
            "virtual": host.virtual(),
            "caches": [[cache.level, cache.nbytes] for cache in host.caches()],
            "curves": {name: plain(points) for name, points in curves.items()},
            "chains": {count: plain(points) for count, points in chained().items()},
        }
        Path(file).write_text(json.dumps(told) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the curves here as well")
    main(parser.parse_args().json)
