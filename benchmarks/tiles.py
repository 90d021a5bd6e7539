"""How much tiles gain on this machine: the same loops over whole matrices, in tiles, and in copied tiles; and torch.

All are float64 and run on one thread; the loops are compiled by Numba. They take turns, so a machine whose speed
drifts drifts for all of them. The ratios are naive ÷ variant, within one run: above 1, the variant is faster.

    python benchmarks/tiles.py                          # 256, 500, 512 and 768 rows
    python benchmarks/tiles.py --sizes 1024 --json tiles.json
"""

import argparse
import json
from functools import partial
from pathlib import Path

import numpy as np
import torch

from d2lmini.reuse.loop_order import compiled, loops_ijk, loops_ikj, loops_packed, loops_tiled
from d2lmini.timing import Measurement, Timer, human, provenance


def variants(n, tile):
    """Return name -> function that adds A B to C, and those A, B, C."""
    A, B = np.random.default_rng(n).random((2, n, n))
    C = np.zeros((n, n))
    ijk, ikj, tiled, packed = map(compiled, (loops_ijk, loops_ikj, loops_tiled, loops_packed))
    a, b, c = map(torch.from_numpy, (A, B, C))  # the same memory
    ways = {
        "naive (ijk)": partial(ijk, A, B, C),
        "ijk in tiles": partial(tiled, ijk, A, B, C, tile),
        "ijk in copied tiles": partial(packed, ijk, A, B, C, tile),
        "ikj": partial(ikj, A, B, C),
        "ikj in copied tiles": partial(packed, ikj, A, B, C, tile),
        "torch": partial(torch.addmm, c, a, b, out=c),
    }
    return ways, A, B, C


def run(n, tile, rounds):
    """Return name -> Measurement of seconds; each way's first turn is checked and not measured."""
    ways, A, B, C = variants(n, tile)
    right, timers = A @ B, {name: Timer(["cpu"]) for name in ways}
    for name, function in ways.items():
        C[:] = 0
        function()
        if not np.allclose(C, right):
            raise RuntimeError(f"{name} computed a wrong product of {n} rows")
    for _ in range(rounds):
        for name, function in ways.items():
            timers[name].start()
            function()
            timers[name].stop()
    return {name: Measurement(tuple(sorted(timer.times))) for name, timer in timers.items()}


def report(n, tile, results):
    """Print a table for one size and return it as a dict."""
    naive, torchs = results["naive (ijk)"].median, results["torch"].median
    print(f"\n{n} rows, tiles of {tile}\n{'':22}{'median':>10}{'95 % interval':>24}{'naive ÷':>9}{'÷ torch':>9}")
    for name, m in results.items():
        interval = " to ".join(map(human, m.interval))
        print(f"{name:22}{human(m.median):>10}{interval:>24}{naive / m.median:>9.2f}{m.median / torchs:>9.2f}")
    return {name: {"median_s": m.median, "interval_s": m.interval} for name, m in results.items()}


def main():
    """Measure every size, print the tables, and write them to the file that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[256, 500, 512, 768], metavar="ROWS")
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of each variant, at least 6")
    parser.add_argument("--json", type=Path, help="also write the results to this file")
    options = parser.parse_args()
    if min([*options.sizes, options.tile]) < 1 or options.rounds < 6:
        parser.error("sizes and the tile must be at least 1, rounds at least 6")
    torch.set_num_threads(1)
    where = provenance(["cpu"])
    print(where)
    results = {n: report(n, options.tile, run(n, options.tile, options.rounds)) for n in options.sizes}
    if options.json:
        options.json.write_text(json.dumps({"provenance": where, "tile": options.tile, "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
