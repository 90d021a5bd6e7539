"""How much tiles gain on this machine: the same loops over whole matrices, in tiles, and in copied tiles; and torch.

All are float64 and run on one thread; the loops are compiled by Numba. They take turns, so a machine whose speed
drifts drifts for all of them. The ratios are ijk ÷ variant, within one run: above 1, the variant is faster.

    python benchmarks/tiles.py                          # 256, 500, 512 and 768 rows
    python benchmarks/tiles.py --sizes 1024 --json tiles.json
"""

import argparse
import json

import torch
from outputs import writable

from d2lmini.measuring.product_loops import measure_here
from d2lmini.timing import human, provenance


def report(n, tile, results):
    """Print a table for one size and return it as a dict."""
    first, torchs = results["ijk"].median, results["torch"].median
    print(f"\n{n} rows, tiles of {tile}\n{'':22}{'median':>10}{'95 % interval':>24}{'ijk ÷':>9}{'÷ torch':>9}")
    for name, m in results.items():
        interval = " to ".join(map(human, m.interval))
        print(f"{name:22}{human(m.median):>10}{interval:>24}{first / m.median:>9.2f}{m.median / torchs:>9.2f}")
    return {name: {"median_s": m.median, "interval_s": m.interval} for name, m in results.items()}


def main():
    """Measure every size, print the tables, and write them to the file that was asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", nargs="+", type=int, default=[256, 500, 512, 768], metavar="ROWS")
    parser.add_argument("--tile", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7, help="measured turns of each variant, at least 6")
    parser.add_argument("--json", type=writable, help="also write the results to this file")
    options = parser.parse_args()
    if min([*options.sizes, options.tile]) < 1 or options.rounds < 6:
        parser.error("sizes and the tile must be at least 1, rounds at least 6")
    torch.set_num_threads(1)  # as each measurement has it, so that the first line is true
    where = provenance(["cpu"])
    print(where)
    results = {n: report(n, options.tile, measure_here(n, options.tile, options.rounds)) for n in options.sizes}
    if options.json:
        options.json.write_text(json.dumps({"provenance": where, "tile": options.tile, "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
