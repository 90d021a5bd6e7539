"""Fit the constants of `simgpu/hardware/collective_costs.py` to published latencies, and say what held-out rows say.

Run `python benchmarks/fit_collectives.py FILE`, a CSV file with the columns gpu, op_name, num_gpus, bytes and
latency_ms. Two fits come first, each to a part of the rows that was fixed before any fit, and print the median
error on the rest: 4 GPUs for 2 and 8, all_reduce and alltoall for the other operations. The third takes all rows; its
constants, rounded to two digits, are the module's. Errors are of logarithms, where far-off rows count less.
"""

import argparse
import csv
import math
import statistics
import sys
from collections import defaultdict
from functools import cache

import numpy as np
import runs
from scipy.optimize import least_squares

from simgpu.hardware import collective_costs as model

CONSTANTS = [
    ("START_S",),
    ("ADDED_S", "LL128"),
    ("ADDED_S", "Simple"),
    ("HOP_S", "LL"),
    ("HOP_S", "LL128"),
    ("HOP_S", "Simple"),
    ("SHARE", "LL"),
    ("SHARE", "LL128"),
    ("FILLING_S",),
    ("STAYING_SHARE",),
    ("HOPPER_PACE",),
    ("DIRECT_S",),
    ("PEER_S",),
    ("DIRECT_FILLING_S",),
    ("DIRECT_SHARE",),
    ("BUSY_BYTES",),
    ("SHARP_S",),
    ("SHARP_FILLING_S",),
    ("SHARP_SHARE",),
]
BANDS = {"to 64 KiB": 2**16, "to 8 MiB": 2**23, "above": math.inf}
SPLITS = {  # what is fitted; the switch's additions are seen with 8 H100 alone, so those rows take part in both
    "rows of 4 GPUs": lambda row: int(row["num_gpus"]) == 4 or by_switch(row),
    "rows of all_reduce and alltoall": lambda row: row["op_name"] in ("all_reduce", "alltoall"),
    "all rows": lambda row: True,
}


def by_switch(row):
    """Return whether a row's collective would be added up by the switch."""
    return row["op_name"] == "all_reduce" and row["gpu"].startswith("H") and int(row["num_gpus"]) == 8


def get(constant):
    """Return a constant of the model."""
    value = getattr(model, constant[0])
    return value if len(constant) == 1 else value[constant[1]]


def put(constant, value):
    """Change a constant of the model."""
    if len(constant) == 1:
        setattr(model, constant[0], value)
    else:
        getattr(model, constant[0])[constant[1]] = value


def simulated(row):
    """Return a row's simulated seconds."""
    gpus = int(row["num_gpus"])
    return model.seconds(row["op_name"], _machine(row["gpu"], gpus), gpus, int(row["bytes"]))


@cache
def _machine(gpu, gpus):
    return runs.machine(runs.card(gpu), gpus, most=8)


def fit(rows):
    """Leave the model with the constants that fit the rows best, starting from those that it has."""
    start = np.array([get(constant) for constant in CONSTANTS])

    def errors(steps):
        for constant, value in zip(CONSTANTS, start * np.exp(steps), strict=True):
            put(constant, float(value))
        return [math.log(simulated(row) / (float(row["latency_ms"]) * 1e-3)) for row in rows]

    errors(least_squares(errors, np.zeros(len(start)), loss="soft_l1", f_scale=0.1).x)


def medians(rows):
    """Return the median relative error in each band of size, by card, by card and operation, and by card and count."""
    found = defaultdict(lambda: {band: [] for band in BANDS})
    for row in rows:
        error = abs(simulated(row) / (float(row["latency_ms"]) * 1e-3) - 1)
        band = next(band for band, most in BANDS.items() if int(row["bytes"]) <= most)
        for key in ((row["gpu"],), (row["gpu"], row["op_name"]), (row["gpu"], f"{row['num_gpus']} GPUs")):
            found[key][band].append(error)
    return {
        key: {band: statistics.median(errors) for band, errors in bands.items() if errors}
        for key, bands in sorted(found.items())
    }


def show(title, rows):
    """Print the medians of some rows."""
    print(f"  {title}: {len(rows)} rows; median error {', '.join(BANDS)}")
    for key, bands in medians(rows).items():
        print(f"    {' '.join(key):32}", "  ".join(f"{error:6.1%}" for error in bands.values()))


def main(path):
    """Fit and print."""
    with open(path, encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    shipped = {constant: get(constant) for constant in CONSTANTS}
    show("the model as it is", rows)
    for title, chosen in SPLITS.items():
        for constant, value in shipped.items():
            put(constant, value)
        fit([row for row in rows if chosen(row)])
        print(f"fit to {title}:", ", ".join(f"{'.'.join(constant)} {get(constant):.2g}" for constant in CONSTANTS))
        show("fitted", [row for row in rows if chosen(row)])
        show("held out", [row for row in rows if not chosen(row)])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", metavar="FILE", help="measured latencies")
    try:
        main(parser.parse_args().file)
    except (OSError, KeyError) as error:
        sys.exit(f"fit_collectives.py: expected a table of collectives, got {type(error).__name__}: {error}")
