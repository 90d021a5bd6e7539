"""How well two numbers predict a copy's time on this machine: α and β fitted to one run, held against another.

Run `python benchmarks/transfers.py` from the repository's root; `--json FILE` writes the figures. The wanted: from
64 KiB on, the median error of the prediction is at most 20 % for copies within the host's main memory. The last
row copies the same bytes again and again, out of the caches: what the fit would be worth without the pool.
Where the machine has GPUs of its own, every route between them is measured as well, and what a second stream hides.
"""

import argparse
import json
import statistics
from pathlib import Path

from copy_overlap import hidden, measure_overlap
from outputs import writable

from d2lmini.devices import cpu, try_all_gpus
from d2lmini.measuring import line_fit, transfers
from d2lmini.measuring.transfers import SIZES, Route
from d2lmini.timing import human

LEAST, WANTED = 2**16, 0.20


def predicted(route, most, pool=transfers.POOL):
    """Fit one run, predict another, and return the figures of both as a row."""
    (sizes, first, origin), (_, second, _) = (_run(route, most, pool) for _ in range(2))
    line = line_fit.fit(sizes, first)
    errors = [abs(line.predict(n) / t - 1) for n, t in zip(sizes, second) if n >= LEAST]
    return {
        "route": f"{route}{'' if pool else ', the same bytes'}",
        "origin": origin,
        "alpha_s": line.alpha,
        "alpha_interval_s": line.alpha_interval,
        "beta_bytes_per_s": line.beta,
        "beta_interval_bytes_per_s": line.beta_interval,
        "half_bytes": line.half,
        "residual": line.median_error(LEAST),
        "error": statistics.median(errors),
        "worst": max(errors),
    }


def _run(route, most, pool):
    """Return sizes, medians and origin; without a pool each size is measured by itself, so it meets its own bytes."""
    if pool:
        copies = transfers.measure_route(route, most=most, pool=pool)
        return copies.sizes, copies.seconds, copies.origin
    alone = [transfers.measure_route(route, sizes=[n], pool=0) for n in SIZES if n <= most]
    return [copies.sizes[0] for copies in alone], [copies.seconds[0] for copies in alone], alone[0].origin


def main(file=None, most=SIZES[-1]):
    """Measure, print the table, and write the figures to `file`."""
    gpus = [device for device in try_all_gpus() if device.type not in ("cpu", "sim")]
    within = Route(cpu(), cpu())
    rows = [predicted(route, most) for route in ([within, *transfers.routes(*gpus)] if gpus else [within])]
    rows.append(predicted(within, most, pool=0))
    print(f"copies of {SIZES[0]} bytes to {most / 2**20:.0f} MiB; errors are medians from {LEAST // 2**10} KiB on")
    print(f"{'route':24} {'α':>8} {'β':>11} {'n½':>9} {'residual':>9} {'error':>7} {'worst':>7}")
    for row in rows:
        print(f"{row['route']:24} {human(row['alpha_s']):>8} {row['beta_bytes_per_s'] / 1e9:6.2f} GB/s", end=" ")
        print(f"{row['half_bytes'] / 1e3:6.0f} kB {row['residual']:9.1%} {row['error']:7.1%} {row['worst']:7.1%}")
    print(f"{'within' if rows[0]['error'] <= WANTED else 'OUTSIDE'} the {WANTED:.0%} wanted")
    print(*dict.fromkeys(row["origin"] for row in rows), sep="\n")
    figures = {"rows": rows}
    for gpu in gpus:
        share = figures[f"hidden on {gpu}"] = hidden(measure_overlap(gpu))
        print(f"{gpu}: a second stream hides {share:.0%} of the shorter of copy and products")
    if file:
        Path(file).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the figures here as well")
    parser.add_argument("--most", metavar="BYTES", type=int, default=SIZES[-1], help="the largest copy")
    options = parser.parse_args()
    main(options.json, options.most)
