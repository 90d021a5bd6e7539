"""Records of `gpu.py` on real cards: the form of their files, writing them, reading them, refusing bad ones.

Every figure in a record is a quantity, an object with its unit; one that was computed or modelled has no interval:

    {"value": 0.093, "unit": "s", "interval": [0.092, 0.095], "runs": 9}
"""

import json
import math
import re
from pathlib import Path

EPOCH = {"name": str, "seconds": "s"}
POINT = {"size": "bytes", "seconds": "s"}
FORM = {  # of a record: a type, or the unit of a quantity; a list's entries are all alike; what is not here is free
    "schema": 1,
    "origin": {
        "device": str,
        "card": str,
        "cards": int,
        "driver": str,
        "torch": str,
        "cuda": str,
        "date": str,
        "host_cpu": str,
        "clock": str,
        "provenance": str,
    },
    "training": {"network": str, "data": str, "images": int, "batch_size": int, "epochs": [EPOCH]},
    "copies": {"routes": [{"name": str, "alpha": "s", "beta": "bytes/s", "points": [POINT]}]},
    "simulated": {"note": str, "rows": [{"name": str, "simulated": "s", "measured": "s", "ratio": "1"}]},
    "scaling": {"note": str, "rows": [{"devices": int, "seconds": "s"}]},
}
FOREIGN = {
    "epoch.json",
    "hidden_units.json",
    "memory.json",
    "networks.json",
    "predict.json",  # lie there too, from other benchmarks
    "published.json",
    "sharded.json",
}


def load(folder):
    """Return the records of all files in a folder, by name; an empty list where there is none, or no folder.

    Raises ValueError, in one line, for the first that is not whole, or was not measured on a CUDA device.
    """
    return [_read(path) for path in sorted(Path(folder).glob("*.json")) if path.name not in FOREIGN]


def _read(path):
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        check(record)
    except (OSError, ValueError) as error:
        raise ValueError(f"{path}: {error}") from None
    origin = record["origin"]
    if (origin["device"], origin["clock"]) != ("cuda", "measured"):
        raise ValueError(f"{path}: expected figures measured on cuda, got {origin['clock']} ones on {origin['device']}")
    return record


def write(path, record):
    """Check a record and write it, so that the file is never there in part; raises ValueError for a bad one."""
    check(record)
    fresh = Path(f"{path}.tmp")
    fresh.write_text(json.dumps(record, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


def check(value, form=FORM, where="record"):
    """Raise ValueError, in one line, for the first thing in `value` that is not as `form` says."""
    if isinstance(form, dict):
        _require(isinstance(value, dict), where, "an object", value)
        for name in form:
            check(value.get(name), form[name], f"{where}.{name}")
    elif isinstance(form, list):
        _require(isinstance(value, list), where, "a list", value)
        for i, entry in enumerate(value):
            check(entry, form[0], f"{where}[{i}]")
    elif isinstance(form, str):
        _require(isinstance(value, dict) and value.get("unit") == form, where, f"a quantity in {form}", value)
        figures = [value.get("value"), *value.get("interval", [])]
        good = all(isinstance(figure, int | float) and math.isfinite(figure) for figure in figures)
        _require(good and len(figures) in (1, 3), where, "a finite value, and two ends of its interval", value)
    else:
        good = isinstance(value, form) and value if isinstance(form, type) else value == form
        _require(good, where, form, value)


def _require(good, where, expected, got):
    if not good:
        raise ValueError(f"{where}: expected {expected}, got {got!r}")


def slug(card):
    """Return a card's name as a file's: ``nvidia-h200`` for "NVIDIA H200"; raises ValueError if nothing is left."""
    made = re.sub(r"[^a-z0-9]+", "-", card.lower()).strip("-")
    if not made:
        raise ValueError(f"the card's name {card!r} holds no letter or digit that a file's name could be made of")
    return made


def quantity(value, unit, interval=None, runs=None):
    """Return a figure as it stands in a file; an interval that has no end on some side is left out."""
    found = {"value": value, "unit": unit}
    if interval is not None and all(map(math.isfinite, interval)):
        found["interval"] = list(interval)
    return found if runs is None else {**found, "runs": runs}


def seconds(measurement):
    """Return a `timing.Measurement` as it stands in a file."""
    return quantity(measurement.median, "s", measurement.interval, len(measurement.seconds))
