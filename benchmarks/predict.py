"""Predict published measurements with the simulated clock, print every one beside it, and say how far off it is.

    python benchmarks/predict.py --rows FILE --json OUT

FILE is a table (CSV) of one of three forms, told by its first line: products of matrices (gpu, m, n, k, latency_ms),
collectives (gpu, op_name, nccl_dtype, num_gpus, bytes, latency_ms), or runs of networks and links (system, gpu, count,
network, precision, batch, metric, value, source). OUT is a list in the file's order. A row that cannot be predicted is
printed with the reason and counted as missed. Where a row leaves something open, what `stacks` assumes is printed with
the prediction; what the host spends on an operation is known least, so both ends of it are printed at the end.
"""

import argparse
import csv
import json
import math
import re
import statistics
import sys
from collections import defaultdict

import on_ranks
import runs
from outputs import writable
from stacks import named_card

from simgpu.hardware import GPUS, HOST_COSTS, collective_costs
from simgpu.hardware.arguments import find
from simgpu.hardware.gemm import Gemm
from simgpu.hardware.op_costs import operation_seconds

UNITS = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}
NCCL_TYPES = (
    "int8",
    "uint8",
    "int32",
    "uint32",
    "int64",
    "uint64",
    "half",
    "bfloat16",
    "float",
    "double",
    "f8e4m3",
    "f8e5m2",
)
DTYPES = {"float16": "half", "fp16": "half", "bf16": "bfloat16", "float32": "float", "fp32": "float", "": "float"}
METRICS = "images_per_s, sequences_per_s, tokens_per_s, tokens_per_s_per_gpu, ms_per_step, busbw_GB_s, TFLOPS_achieved"
COLUMNS = ("published", "simulated", "error", "band", "stack", "reason", "assumed")


def predict(rows):
    """Return one dictionary with the keys `COLUMNS` for each row; raises ValueError for a form that is not known."""
    form = next((form for names, form in FORMS.items() if rows and set(names) <= set(rows[0])), None)
    if form is None:
        known = "; ".join(", ".join(names) for names in FORMS)
        raise ValueError(f"unknown form of file: expected rows with the columns {known}")
    return [_judged(row, form) for row in rows]


def _judged(row, form):
    result = dict.fromkeys(COLUMNS) | {"band": "?", "stack": row.get("system", "library")}
    try:
        result["published"] = published = _number(row["latency_ms" if "latency_ms" in row else "value"])
        result |= form(row)
        result["error"] = result["simulated"] / published - 1
    except (ValueError, RuntimeError) as error:  # RuntimeError: a batch that no memory holds
        result["reason"] = " ".join(str(error).split())
    return result


def _number(text):
    """Return a number that is more than 0; raises ValueError for what is none."""
    try:
        number = float(text)
    except ValueError:
        number = 0
    if not 0 < number < math.inf:
        raise ValueError(f"expected a number above 0, got {text!r}")
    return number


def _whole(text):
    """Return a whole number of at least 1; raises ValueError for what is none."""
    if _number(text) % 1:
        raise ValueError(f"expected a whole number, got {text!r}")
    return int(float(text))


# -- the three forms -------------------------------------------------------------------------------------------------


def product(row):
    """Predict one product of bfloat16 matrices, in milliseconds; of float16 where the card has no bfloat16."""
    m, n, k = (_whole(row[name]) for name in "mnk")
    gpu, assumed = named_card(row["gpu"])
    assumed = assumed if GPUS[gpu].bf16 else f"float16, for the {gpu} has no bfloat16"
    return {
        "simulated": _product_seconds(gpu, m, n, k) * 1e3,
        "stack": "cuBLAS",
        "assumed": assumed,
        "band": f"product {row['gpu']} {_size(m)}",
    }


def _product_seconds(gpu, m, n, k):
    product = Gemm(1, m, n, k, 2 * (m * k + k * n + m * n))
    dtype = "bfloat16" if GPUS[gpu].bf16 else "float16"
    return operation_seconds(2 * m * n * k, product.nbytes, GPUS[gpu], "gemm", dtype, (product,))


def _size(m):
    return next((f"m to {most}" for most in (16, 128, 512) if m <= most), "m above 512")


def collective(row):
    """Predict one collective, in milliseconds."""
    gpu, assumed = named_card(row["gpu"])
    nbytes, gpus = _whole(row["bytes"]), _whole(row["num_gpus"])
    seconds = _collective_seconds(gpu, row["op_name"], row["nccl_dtype"], gpus, nbytes)
    band = f"{row['op_name']} {row['gpu']} {_bytes(nbytes)}"
    return {"simulated": seconds * 1e3, "stack": "NCCL", "band": band, "assumed": assumed}


def _collective_seconds(gpu, name, dtype, gpus, nbytes, node=None, algorithm=None):
    """Return the seconds of a collective, its name and type in NCCL's or in PyTorch's words.

    node: the name in `MACHINES` of the nodes of more than 8 GPUs, by default of the card's own. algorithm: NCCL's,
    there, by default its own choice.
    """
    words = re.sub(r"[^a-z]", "", name.lower()).removesuffix("perf").replace("intotensor", "")
    operation = next((known for known in collective_costs.OPERATIONS if known.replace("_", "") == words), name)
    find(dict.fromkeys(NCCL_TYPES), DTYPES.get(dtype.lower(), dtype.lower()), "type")
    if gpus > 8 and gpus % 8 and node is None:
        raise ValueError(f"expected whole nodes of 8 GPUs, got {gpus}")
    machine = runs.machine(gpu, gpus, nodes=node, most=8)
    return collective_costs.estimate(operation, machine, gpus, nbytes, algorithm=algorithm).seconds


def _bytes(nbytes):
    return "to 64 KiB" if nbytes <= 2**16 else "to 8 MiB" if nbytes <= 2**23 else "above 8 MiB"


def run(row):
    """Predict one row of runs and links, in the unit of its metric."""
    if row["metric"].startswith("TFLOPS"):
        gpu, assumed = named_card(row["gpu"])
        best = max(2 * n**3 / _product_seconds(gpu, n, n, n) for n in range(1024, 16385, 1024))
        return {"simulated": best / 1e12, "band": "best product", "assumed": assumed}
    if row["metric"].startswith(("busbw", "algbw", "GB_s")):
        return _link(row)
    if on_ranks.kind(row):
        return on_ranks.predict(row)
    if not re.match(r"(images|sequences|tokens)_per_s|ms_per_", row["metric"]):
        raise ValueError(f"unknown metric {row['metric']!r}: choose one of {METRICS}")
    wanted = runs.read(row)
    if not row["metric"].startswith(("ms_per", runs.unit(wanted.network))):
        raise ValueError(f"expected {runs.unit(wanted.network)}_per_s of {wanted.network}, got {row['metric']!r}")
    rate = runs.simulate(wanted)
    kind = "training" if wanted.training else "inference"
    gpus = "1 GPU" if wanted.count == 1 else f"{wanted.count} GPUs"
    found = {
        "stack": wanted.stack.name,
        "band": f"{kind} {wanted.precision} {gpus}",
        "assumed": "; ".join(wanted.assumed) or None,
    }
    if row["metric"].startswith("ms_per"):
        return found | {"simulated": runs.examples(wanted) / rate * 1e3}
    return found | {"simulated": rate / (wanted.count if "per_gpu" in row["metric"] else 1)}


def _link(row):
    """Predict a bus bandwidth as nccl-tests defines it, in GB/s."""
    found = re.match(rf"(\d+) ?({'|'.join(UNITS)})?$", row["batch"])
    if not found:
        raise ValueError(f"expected a buffer such as 4096, 256 MB or 1 GiB in the column batch, got {row['batch']!r}")
    (gpu, assumed), gpus = named_card(row["gpu"]), _whole(row["count"])
    if gpus < 2:
        raise ValueError(f"expected at least 2 GPUs for a bandwidth, got {gpus}")
    nbytes = int(found[1]) * UNITS.get(found[2], 1)
    node = runs.P5 if gpus > 8 and runs.on_p5(row["system"], gpu) else None
    reduces = re.sub(r"[^a-z]", "", row["network"].lower()) == "allreduce"
    rings = "ring" if node and reduces and gpus > 16 and "HF cluster" in row["system"] else None
    seconds = _collective_seconds(gpu, row["network"], "float", gpus, nbytes, node, rings)
    why = "Amazon's tuner has it for 32 and 64 GPUs and 256 MB" if gpus <= 64 else "the row alone suggests"
    tuned = rings and f"NCCL's rings, as {why}"
    nodes = f"nodes are {node or runs.machine(gpu, gpus, most=8).node.name}" if gpus > 8 else None
    assumed = "; ".join(filter(None, (assumed, nodes, tuned))) or None
    bus = 1 if row["metric"].startswith("algbw") else (2 if reduces else 1) * (gpus - 1) / gpus
    band = f"{row['network']} {'over nodes' if gpus > 8 else 'in a node'}"
    return {"simulated": bus * nbytes / seconds / 1e9, "stack": "NCCL", "band": band, "assumed": assumed}


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
        published = "?" if result["published"] is None else f"{result['published']:.5g}"
        named = " ".join(value for name, value in row.items() if name not in ("latency_ms", "value", "source"))
        told = result["reason"] or "; ".join(filter(None, (result["assumed"], row.get("source"))))
        print(f"{published:>10} {simulated:>10} {error:>8}  {named} | {result['stack']} | {told}")
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
        print(
            "host, {}: {} µs for an operation that Python calls, elsewhere {} to {}; {} in backward".format(
                cost.name, *told
            )
        )
    for name, pairs in ratios(rows, results).items():
        if pairs:
            off = [abs(simulated / published - 1) for _, published, simulated in pairs]
            print(f"ratio, {name:38} {len(pairs):5} {'':6} {statistics.median(off):7.1%} {max(off):7.1%}")


def ratios(rows, results):
    """Return name → [(row, published, simulated)]: a row's quotients by a run that differs from it in one thing."""
    known = [(row, result) for row, result in zip(rows, results) if result["error"] is not None and "network" in row]
    found = {"more GPUs to 1": [], "16 bits to 32": [], "batch to 1": []}
    for row, result in known:
        for other, base in known:
            name = _differs(row, other)
            if name:
                quotients = [result[key] / base[key] for key in ("published", "simulated")]
                found[name].append((row, *quotients))
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
        with open(path, encoding="utf-8-sig", newline="") as file:
            rows = list(csv.DictReader(line for line in file if not line.startswith("#")))
    except OSError as error:
        raise ValueError(f"cannot read {path}: {error.strerror}") from None
    except (UnicodeDecodeError, csv.Error) as error:
        raise ValueError(f"expected a table in UTF-8, got {path}: {error}") from None
    rows = [{(name or "").strip(): (value or "").strip() for name, value in row.items() if name} for row in rows]
    if not rows:
        raise ValueError(f"expected rows in {path}, found none")
    return rows


def main(arguments=None):
    """Read the rows, predict and print them, and write what was asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rows", metavar="FILE", required=True, help="published measurements, CSV")
    parser.add_argument("--json", type=writable, metavar="OUT", help="write the predictions here as well")
    options = parser.parse_args(arguments)
    try:
        rows = read(options.rows)
        results = predict(rows)
    except ValueError as error:
        sys.exit(f"predict.py: {error}")
    show(rows, results)
    if options.json:
        with options.json.open("w", encoding="utf-8") as file:
            json.dump(results, file, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main()
