"""The figure in which a reader lays out a model over GPUs, against the ten fastest of all layouts.

Unlike `explore` it holds no pictures but numbers, of every layout that its controls can choose; the page draws bars.
"""

import hashlib
import json
from html import escape
from pathlib import Path

from d2lmini.parallel.layout import memory_bytes
from d2lmini.parallel.layout_search import H100, MAY_USE, PACE, layouts, measured_seconds
from d2lmini.parallel.layout_time import step_seconds

GIB = 2**30
CONTROLS = {  # attribute of a `Layout`: (what the reader sees, values)
    "tensor": ("tensor ranks", (1, 2, 4, 8)),
    "pipeline": ("stages", (1, 2, 4, 8)),
    "chunks": ("chunks of a stage", (1, 2, 4)),
    "context": ("context ranks", (1, 2, 4, 8)),
    "expert": ("expert ranks", (1, 2, 4, 8)),
    "level": ("ZeRO level", (0, 1, 2, 3, "hybrid")),
    "batch": ("sequences in a micro-batch", (1, 2, 4)),
    "recomputed": ("recomputed share", (0.0, 0.5, 1.0)),
}
MESSAGES = ("tensor", "context", "experts", "stages")


class LayoutRace:
    """A figure with a control for each setting of a layout; replicas are what is left of the GPUs.

    Tensor ranks have sequence parallelism.

    Args:
        problems: {name: (`Shape`, sequences of a batch)}.
        gpus: How many H100.
        start: {attribute of a `Layout`: its value at first}; the others begin with their first.
    """

    def __init__(self, problems: dict, gpus: int, start: dict):
        self.problems, self.gpus, self.start = problems, gpus, start

    def __repr__(self):
        return f"<figure: layouts of {', '.join(self.problems)} on {self.gpus} GPUs, and the ten fastest>"

    def _repr_html_(self):
        data = {name: _table(*problem, self.gpus) for name, problem in self.problems.items()}
        text = json.dumps({"gpus": self.gpus, "capacity": MAY_USE / GIB, "models": data}, separators=(",", ":"))
        key = hashlib.sha256(text.encode()).hexdigest()[:10]
        controls = [_control(key, "model", "model", list(self.problems), next(iter(self.problems)))]
        for name, (label, values) in CONTROLS.items():
            controls.append(_control(key, name, label, values, self.start.get(name, values[0])))
        page = Path(__file__).with_name("layout_race.html").read_text(encoding="utf-8")
        for name, value in {"key": key, "controls": "\n".join(controls), "data": text}.items():
            page = page.replace(f"{{{{{name}}}}}", value)
        return page


def _control(key, name, label, values, start):
    options = "".join(f"<option{' selected' if value == start else ''}>{_said(value)}</option>" for value in values)
    select = f'<select id="race-{key}-{name}" name="{name}" autocomplete="off">{options}</select>'
    return f'<label for="race-{key}-{name}">{escape(label)} {select}</label>'


def _said(value):
    return escape(f"{value:g}" if isinstance(value, float) else str(value))


def _table(shape, sequences, gpus):
    """Return what the page knows of a problem: {"tokens": of a step, "rows": numbers, "best": ten rows}.

    Rows: {all settings but the last: {the last: numbers}}.

    The numbers are the memory's parts in tenths of a GiB and the time's in ms: weights, gradients, optimizer,
    activations; computing, messages, bubble, data and update.
    """
    rows, found, tokens = {}, [], sequences * shape.length
    for layout in layouts(shape, gpus, sequences):
        if layout.sequence == (layout.tensor > 1):
            try:
                memory, took = memory_bytes(shape, layout), step_seconds(shape, layout, H100, measured_seconds, PACE)
            except ValueError:  # which cannot be cut so
                continue
            first, _, last = _key(layout).rpartition(" ")
            rows.setdefault(first, {})[last] = _numbers(memory, took)
            if sum(memory.values()) <= MAY_USE:
                found.append((tokens / sum(took.values()) / gpus, layout))
    found.sort(key=lambda pair: -pair[0])
    return {"tokens": tokens, "rows": rows, "best": [[_name(layout), round(speed)] for speed, layout in found[:10]]}


def _level(layout):
    """The ZeRO level; "hybrid" is ZeRO-3 among the replicas of a node."""
    return "hybrid" if layout.shards else str(layout.level)


def _key(layout):
    return " ".join(_level(layout) if name == "level" else f"{getattr(layout, name):g}" for name in CONTROLS)


def _numbers(memory, took):
    messages, rest = sum(took[what] for what in MESSAGES), took["data"] + took["update"]
    seconds = took["compute"], messages, took["bubble"], rest
    return [*(round(10 * part / GIB) for part in memory.values()), *(round(1e3 * part) for part in seconds)]


def _name(layout):
    """Return a layout in a few words: d8 t2 p4×2 c1 e1, ZeRO-1, 8 of 1."""
    parts = f"d{layout.data} t{layout.tensor} p{layout.pipeline}" + f"×{layout.chunks}" * (layout.chunks > 1)
    more = "".join(f" {letter}{n}" for letter, n in (("c", layout.context), ("e", layout.expert)) if n > 1)
    again = f", {layout.recomputed:.0%} recomputed" if layout.recomputed else ""
    zero = "hybrid" if layout.shards else f"ZeRO-{layout.level}"
    return f"{parts}{more}, {zero}, {layout.batches} × {layout.batch}{again}"
