"""A run's report as one HTML page without anything from elsewhere."""

from html import escape

from simgpu.accounting.allocator import human

_MOST = 12  # lines that are named of what held a GPU's memory
_STYLE = """
:root { color-scheme: light dark; }
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: 0.2rem 0.6rem; border-bottom: 1px solid #8886; }
th:first-child, td:first-child { text-align: left; }
.bar { display: flex; height: 1.1rem; min-width: 12rem; background: #8883; }
.busy { background: #3b7dd8; } .exposed { background: #9467bd; }
.key { display: inline-block; width: 0.8rem; height: 0.8rem; margin: 0 0.3rem 0 1rem; }
"""


def page(report):
    """Return the page for what `report.summary` returns."""
    step = report["step_seconds"]
    facts = [
        ("simulated seconds", _seconds(report["seconds"])),
        ("a step", "fewer than two steps" if step is None else _seconds(step)),
        ("steps", report["steps"]),
        ("peak memory", human(max((gpu["peak_bytes"] for gpu in report["gpus"]), default=0))),
        ("bytes sent", f"{sum(row['bytes'] for row in report['collectives']):,}"),
    ]
    title = f"{report['ranks']} rank{'s' * (report['ranks'] != 1)} on simulated {report['machine']}"
    parts = [f"<h1>{escape(title)}</h1>", _table(("", "value"), facts), "<h2>Where the time went</h2>"]
    parts.append(
        '<p><span class="key busy"></span>busy: an operation ran <span class="key exposed"></span>exposed '
        "communication: a collective, and no operation; the rest is idle.</p>"
    )
    head = ("GPU", "", "busy", "exposed communication", "idle", "peak memory")
    parts.append(_table(head, [_gpu(gpu, report["seconds"]) for gpu in report["gpus"]], raw={1}))
    parts += ["<h2>What held the memory at its peak</h2>", _held(report["gpus"])]
    rows = [
        (row["name"], row["group"], row["calls"], f"{row['bytes']:,}", _seconds(row["seconds"]))
        for row in report["collectives"]
    ]
    parts += ["<h2>Communication</h2>", _table(("collective", "group", "calls", "bytes", "time"), rows)]
    rows = [(row["what"], row["calls"], _seconds(row["seconds"])) for row in report["host_waits"]]
    parts += ["<h2>Waits of the host</h2>", _table(("for", "times", "time"), rows)]
    if report["stand_ins"]:
        rows = sorted(report["stand_ins"].items(), key=lambda item: -item[1])
        parts += ["<h2>Numbers read that were not computed</h2>", _table(("line", "times"), rows)]
    body = "\n".join(parts)
    return (
        f'<!doctype html>\n<html lang="en"><meta charset="utf-8"><title>{escape(title)}</title>'
        f"<style>{_STYLE}</style>\n<body>\n{body}\n</body></html>\n"
    )


def _gpu(gpu, total):
    shares = [
        (kind, gpu[f"{name}_seconds"] / total if total else 0)
        for kind, name in (("busy", "busy"), ("exposed", "exposed_communication"))
    ]
    bars = "".join(f'<div class="{kind}" style="width:{share:.2%}"></div>' for kind, share in shares)
    times = [_seconds(gpu[f"{name}_seconds"]) for name in ("busy", "exposed_communication", "idle")]
    return (gpu["gpu"], f'<div class="bar">{bars}</div>', *times, human(gpu["peak_bytes"]))


def _held(gpus):
    fullest = max(gpus, key=lambda gpu: gpu["peak_bytes"], default=None)
    if fullest is None or not fullest["held_at_peak"]:
        return "<p>No memory was in use.</p>"
    rows = [(line, human(nbytes)) for line, nbytes in list(fullest["held_at_peak"].items())[:_MOST]]
    rest = sum(list(fullest["held_at_peak"].values())[_MOST:])
    rows += [("all other lines", human(rest))] if rest else []
    text = f"<p>On GPU {fullest['gpu']}, by the line of the program that took it.</p>"
    return text + _table(("line", "memory"), rows)


def _table(head, rows, raw=()):
    if not rows:
        return "<p>None.</p>"
    top = "".join(f"<th>{escape(str(cell))}</th>" for cell in head)
    lines = [
        "".join(f"<td>{cell if place in raw else escape(str(cell))}</td>" for place, cell in enumerate(row))
        for row in rows
    ]
    return f"<table><tr>{top}</tr>" + "".join(f"<tr>{line}</tr>" for line in lines) + "</table>"


def _seconds(seconds):
    for unit, size in (("s", 1), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.4g} {unit}"
    return "0 s" if not seconds else f"{seconds * 1e9:.4g} ns"
