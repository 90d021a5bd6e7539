"""Predict published measurements with the simulated clock, print every one beside it, and say how far off it is.

    python benchmarks/predict.py --rows FILE --json OUT

FILE is a table (CSV) of one of three forms, told by its first line: products of matrices (gpu, m, n, k, latency_ms),
collectives (gpu, op_name, nccl_dtype, num_gpus, bytes, latency_ms), or runs of networks and links (system, gpu, count,
network, precision, batch, metric, value, source). OUT is a list in the file's order. A row that cannot be predicted is
printed with the reason and counted as missed. Where the source of a run leaves something open, `runs` says what is
assumed; what the host spends on an operation is known least, so both ends of it are printed at the end.
"""

import argparse
import csv
import json
import re
import statistics
import sys
from collections import defaultdict

import runs

from d2lmini.hardware import GPUS, HOST_COSTS, collective_costs
from d2lmini.hardware.costs import operation_seconds
from d2lmini.hardware.products import Product

METRICS = "images_per_s, sequences_per_s, tokens_per_s, tokens_per_s_per_gpu, ms_per_step, busbw_GB_s, TFLOPS_achieved"
COLUMNS = ("published", "simulated", "error", "band", "stack", "reason")


def predict(rows):
    """Return one dictionary with the keys `COLUMNS` for each row; raises ValueError for a form that is not known."""
    form = next((form for names, form in FORMS.items() if rows and set(names) <= set(rows[0])), None)
    if form is None:
        known = "; ".join(", ".join(names) for names in FORMS)
        raise ValueError(f"unknown form of file: expected rows with the columns {known}")
    return [_judged(row, form) for row in rows]


def _judged(row, form):
    published = float(row.get("latency_ms") or row["value"])
    result = dict.fromkeys(COLUMNS) | {"published": published, "band": "?", "stack": row.get("system", "library")}
    try:
        result |= form(row)
        result["error"] = result["simulated"] / published - 1
    except ValueError as error:
        result["reason"] = str(error)
    return result


# -- the three forms -------------------------------------------------------------------------------------------------


def product(row):
    """Predict one product of bfloat16 matrices, in milliseconds."""
    m, n, k = (int(row[name]) for name in "mnk")
    return {"simulated": _product_seconds(runs.card(row["gpu"]), m, n, k) * 1e3, "stack": "cuBLAS",
            "band": f"product {row['gpu']} {_size(m)}"}  # fmt: skip


def _product_seconds(gpu, m, n, k):
    product = Product(1, m, n, k, 2 * (m * k + k * n + m * n))
    return operation_seconds(2 * m * n * k, product.nbytes, GPUS[gpu], "gemm", "bfloat16", (product,))


def _size(m):
    return next((f"m to {most}" for most in (16, 128, 512) if m <= most), "m above 512")


def collective(row):
    """Predict one collective, in milliseconds."""
    nbytes, gpus = int(row["bytes"]), int(row["num_gpus"])
    seconds = collective_costs.row_seconds(row["gpu"], row["op_name"], row["nccl_dtype"], gpus, nbytes)
    return {"simulated": seconds * 1e3, "stack": "NCCL", "band": f"{row['op_name']} {row['gpu']} {_bytes(nbytes)}"}


def _bytes(nbytes):
    return "to 64 KiB" if nbytes <= 2**16 else "to 8 MiB" if nbytes <= 2**23 else "above 8 MiB"


def run(row):
    """Predict one row of runs and links, in the unit of its metric."""
    if row["metric"].startswith("TFLOPS"):
        gpu = runs.card(row["gpu"])
        best = max(2 * n**3 / _product_seconds(gpu, n, n, n) for n in range(1024, 16385, 1024))
        return {"simulated": best / 1e12, "band": "best product"}
    if row["metric"].startswith(("busbw", "GB_s")):
        return _link(row)
    wanted = runs.read(row)
    rate = runs.simulate(wanted)
    kind = "training" if wanted.training else "inference"
    gpus = "1 GPU" if wanted.count == 1 else f"{wanted.count} GPUs"
    found = {"stack": wanted.stack.name, "band": f"{kind} {wanted.precision} {gpus}"}
    if row["metric"].startswith("ms_per"):
        tokens = int(re.match(r"\d+", row["batch"])[0])
        return found | {"simulated": tokens / rate * 1e3}
    if not re.match(r"(images|sequences|tokens)_per_s", row["metric"]):
        raise ValueError(f"unknown metric {row['metric']!r}: choose one of {METRICS}")
    return found | {"simulated": rate / (wanted.count if "per_gpu" in row["metric"] else 1)}


def _link(row):
    """Predict a bus bandwidth as nccl-tests defines it, in GB/s."""
    found = re.match(r"(\d+) ?(MB)?$", row["batch"])
    if not found:
        raise ValueError(f"expected bytes, or MB, of a collective in the column batch, got {row['batch']!r}")
    nbytes, gpus = int(found[1]) * (10**6 if found[2] else 1), int(row["count"])
    seconds = collective_costs.row_seconds(row["gpu"], row["network"], "float", gpus, nbytes)
    twice = 2 if row["network"] == "all_reduce" else 1
    rate = twice * (gpus - 1) / gpus * nbytes / seconds
    band = f"{row['network']} {'over nodes' if gpus > 8 else 'in a node'}"
    return {"simulated": rate / 1e9, "stack": "NCCL", "band": band}


FORMS = {
    ("gpu", "m", "n", "k", "latency_ms"): product,
    ("gpu", "op_name", "nccl_dtype", "num_gpus", "bytes", "latency_ms"): collective,
    ("system", "gpu", "count", "network", "precision", "batch", "metric", "value", "source"): run,
}


# -- what is printed -------------------------------------------------------------------------------------------------


def show(rows, results):
    """Print every row, then the bands, then the ratios."""
    for row, result in zip(rows, results):
        error = "missed" if result["error"] is None else f"{result['error']:+.1%}"
        simulated = "" if result["simulated"] is None else f"{result['simulated']:.5g}"
        named = " ".join(value for name, value in row.items() if name not in ("latency_ms", "value", "source"))
        print(f"{result['published']:>10.5g} {simulated:>10} {error:>8}  {named} | {result['stack']} | "
              f"{result['reason'] or row.get('source', '')}")  # fmt: skip
    bands = defaultdict(list)
    for result in results:
        bands[result["band"]].append(result["error"])
    print(f"\n{'band':45} {'rows':>5} {'missed':>6} {'median':>7} {'worst':>7}")
    for band, errors in sorted(bands.items()):
        known = [abs(error) for error in errors if error is not None]
        middle = f"{statistics.median(known):7.1%} {max(known):7.1%}" if known else ""
        print(f"{band:45} {len(errors):5} {len(errors) - len(known):6} {middle}")
    for cost in HOST_COSTS.values() if "network" in rows[0] else ():
        told = [f"{1e6 * s:.0f}" for s in (cost.forward_s, cost.low_s, cost.high_s, cost.backward_s)]
        print("host, {}: {} µs for an operation that Python calls, elsewhere {} to {}; {} in backward".format(
            cost.name, *told))  # fmt: skip
    for name, pairs in ratios(rows, results).items():
        if pairs:
            off = [abs(simulated / published - 1) for published, simulated in pairs]
            print(f"ratio, {name:38} {len(pairs):5} {'':6} {statistics.median(off):7.1%} {max(off):7.1%}")


def ratios(rows, results):
    """Return name → [(published, simulated)]: quotients of two runs of one system that differ in one thing."""
    known = [(row, result) for row, result in zip(rows, results) if result["error"] is not None and "network" in row]
    found = {"more GPUs to 1": [], "16 bits to 32": [], "batch to 1": []}
    for row, result in known:
        for other, base in known:
            name = _differs(row, other)
            if name:
                found[name].append((result["published"] / base["published"], result["simulated"] / base["simulated"]))
    return found


def _differs(row, other):
    """Return in what a row goes beyond another that is the same run otherwise, None for other pairs."""
    if any(row[name] != other[name] for name in ("network", "metric", "source")) or _card(row) != _card(other):
        return None
    same = {name for name in ("count", "precision") if row[name] == other[name]}
    if "count" not in same and "precision" in same and other["count"] == "1":
        return "more GPUs to 1"
    if same == {"count"} and other["precision"].startswith("FP32") and row["precision"].startswith("AMP"):
        return "16 bits to 32"
    return "batch to 1" if len(same) == 2 and other["batch"] == "1" != row["batch"] else None


def _card(row):
    return re.sub(r"\d+x ?", "", row["gpu"])


def read(path):
    """Return the rows of a file; raises ValueError for one that is not there or holds no rows."""
    try:
        with open(path, encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    if not rows:
        raise ValueError(f"expected rows in {path}, found none")
    return rows


def main(arguments=None):
    """Read the rows, predict and print them, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", metavar="FILE", required=True, help="published measurements, CSV")
    parser.add_argument("--json", metavar="OUT", help="write the predictions here as well")
    options = parser.parse_args(arguments)
    try:
        rows = read(options.rows)
        results = predict(rows)
    except ValueError as error:
        sys.exit(f"predict.py: {error}")
    show(rows, results)
    if options.json:
        with open(options.json, "w", encoding="utf-8") as file:
            json.dump(results, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
