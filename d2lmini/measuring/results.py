"""Recorded runs of `benchmarks/gpu.py` on real cards: the form of their files, reading them, and refusing bad ones.

A file is JSON, one object. Every figure in it is a quantity, itself an object with its unit:

    {"value": 0.093, "unit": "s", "interval": [0.092, 0.095], "runs": 9}

An interval is that of `timing.Measurement`, or of a fit, at 95 %; figures that were computed or modelled have none.
Units: "s", "bytes", "bytes/s", and "1" for a ratio.
"""

import json
import math
import re
from pathlib import Path

SCHEMA = 1
FOREIGN = {"epoch.json", "memory.json", "predict.json"}  # lie in the same folder, written by other benchmarks
ORIGIN = ("device", "card", "driver", "torch", "cuda", "date", "host_cpu", "clock", "provenance")  # all are texts


class ResultError(ValueError):
    """A file of results that cannot be used; the message begins with the file's name."""


def load(folder):
    """Return the results of all files in a folder, by name; an empty list where there is none, or no folder.

    Raises ResultError for the first file that is not whole, or whose figures do not come from a CUDA device.
    """
    found = [read(path) for path in sorted(Path(folder).glob("*.json")) if path.name not in FOREIGN]
    for path, result in found:
        if (result["origin"]["device"], result["origin"]["clock"]) != ("cuda", "measured"):
            raise ResultError(f"{path}: expected figures measured on a CUDA device, got {_whence(result)}")
    return [result for _, result in found]


def read(path):
    """Return (path, result) of one file; raises ResultError unless it is what `write` writes."""
    path = Path(path)
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ResultError(f"{path}: cannot be read as JSON: {error}") from error
    try:
        validate(result)
    except ValueError as error:
        raise ResultError(f"{path}: {error}") from error
    return path, result


def write(path, result):
    """Check a result and write it, so that the file is never there in part; raises ValueError for a bad result."""
    validate(result)
    write_json(path, result)


def write_json(path, values):
    """Write plain values, so that the file is never there in part. Raises ValueError for nan and infinity."""
    path = Path(path)
    fresh = path.with_name(path.name + ".tmp")
    fresh.write_text(json.dumps(values, indent=1, ensure_ascii=False, allow_nan=False) + "\n", encoding="utf-8")
    fresh.replace(path)


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


def validate(result):
    """Raise ValueError, in one line, for the first thing in `result` that is not as it should be."""
    _require(isinstance(result, dict), "a result", "an object", result)
    _require(result.get("schema") == SCHEMA, "schema", SCHEMA, result.get("schema"))
    origin = _field(result, "origin", dict)
    for name in ORIGIN:
        _field(origin, name, str, "origin.")
    _require(re.fullmatch(r"\d{4}-\d\d-\d\d", origin["date"]), "origin.date", "YYYY-MM-DD", origin["date"])
    _require(origin["clock"] in ("measured", "simulated"), "origin.clock", "measured or simulated", origin["clock"])
    _require(_count(origin.get("cards")), "origin.cards", "a whole number of at least 1", origin.get("cards"))
    for part, check in PARTS.items():
        check(_field(result, part, dict), part + ".")


def _training(part, where):
    for name in ("network", "data"):
        _field(part, name, str, where)
    for name in ("images", "batch_size"):
        _require(_count(part.get(name)), where + name, "a whole number of at least 1", part.get(name))
    for row, place in _rows(part, "epochs", where, least=1):
        _field(row, "name", str, place)
        _quantity(row, "seconds", "s", place)
    if "note" in part:  # what could not be measured, and why
        _field(part, "note", str, where)


def _copies(part, where):
    for row, place in _rows(part, "routes", where, least=1):
        _field(row, "name", str, place)
        _quantity(row, "alpha", "s", place, least=-math.inf)  # a fit's: noise can push it below 0
        _quantity(row, "beta", "bytes/s", place)
        for point, spot in _rows(row, "points", place, least=3):
            _quantity(point, "size", "bytes", spot)
            _quantity(point, "seconds", "s", spot)


def _compared(part, where):
    _field(part, "note", str, where)
    for row, place in _rows(part, "rows", where):
        _field(row, "name", str, place)
        for name, unit in (("simulated", "s"), ("measured", "s"), ("ratio", "1")):
            _quantity(row, name, unit, place)


def _scaling(part, where):
    _field(part, "note", str, where)
    for row, place in _rows(part, "rows", where):
        _require(_count(row.get("devices")), place + "devices", "a whole number of at least 1", row.get("devices"))
        _quantity(row, "seconds", "s", place)
        if row["devices"] > 1:
            for name, unit in (("allreduce", "s"), ("size", "bytes"), ("busbw", "bytes/s")):
                _quantity(row, name, unit, place)


PARTS = {"training": _training, "copies": _copies, "simulated": _compared, "scaling": _scaling}


def _field(holder, name, kind, where=""):
    words = {str: "a text that is not empty", dict: "an object", list: "a list"}
    value = holder.get(name)
    _require(isinstance(value, kind) and (value or kind is not str), where + name, words[kind], value)
    return value


def _rows(holder, name, where, least=0):
    """Yield each entry of a list of objects, with its place."""
    rows = _field(holder, name, list, where)
    _require(len(rows) >= least, where + name, f"{least} entries or more", len(rows))
    for i, row in enumerate(rows):
        _require(isinstance(row, dict), f"{where}{name}[{i}]", "an object", row)
        yield row, f"{where}{name}[{i}]."


def _quantity(holder, name, unit, where, least=0):
    where, found = where + name, _field(holder, name, dict, where)
    _require(found.get("unit") == unit, where + ".unit", unit, found.get("unit"))
    value, interval = found.get("value"), found.get("interval")
    _require(_number(value) and value > least, where + ".value", f"a number above {least}", value)
    if interval is None:
        return
    ends = isinstance(interval, list) and len(interval) == 2 and all(map(_number, interval))
    _require(ends and interval[0] <= value <= interval[1], where + ".interval", "two ends around the value", interval)


def _require(good, what, expected, got):
    if not good:
        raise ValueError(f"{what}: expected {expected}, got {got!r}")


def _number(value):
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _count(value):
    return isinstance(value, int) and not isinstance(value, bool) and value >= 1


def _whence(result):
    return f"{result['origin']['clock']} ones on {result['origin']['device']}, {result['origin']['card']}"
