"""Timelines on simulated GPUs, under one another and to one scale, with a legend.

Every timeline of the book takes its colours from `simgpu.accounting.trace.COLOURS`, so that a colour means one thing:
green a launch, red the host's own work, grey a wait, blue an operation, orange a copy, purple a collective.
"""

import copy
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace

import torch
from matplotlib import rc_context
from matplotlib.figure import Figure

import simgpu
from d2lmini.figures import plots
from d2lmini.timing import human
from simgpu.accounting.trace import Span, Trace

PS = 10**12  # a trace counts in picoseconds
_ORDINALS = {2: "2nd", 3: "3rd"}
WIDTH, ROW, FRAME = 5.5, 0.24, 0.45  # inches: of the figure; the height of a row; what a title and its space take


def show_timelines(*functions, row=ROW):
    """Run each function on idle simulated GPUs and show their timelines in one figure.

    A panel is titled with the function's name, words in place of underscores, and the simulated time that it took.

    Args:
        functions: Functions without arguments.
        row: The height of a row, in inches.

    Returns:
        Their `Trace`s.

    Raises:
        RuntimeError: There is no simulated clock.
    """
    traces = {function.__name__.replace("_", " "): _recorded(function) for function in functions}
    plots.show(timelines(traces, row=row), "; ".join(f"{title}, {trace}" for title, trace in traces.items()))
    return list(traces.values())


def show_traces(traces, alt, marks=(), shades=(), phases=()):
    """Show traces under one another and to one scale, each title with the trace's time.

    A row is named after its GPU, that of another stream than the first "2nd stream" and so on: those that have work are
    counted. The hosts of simulated ranks are named after the ranks' GPUs.

    Args:
        traces: Title -> `Trace`.
        alt: What the figure shows, for those who do not see it.
        marks: For each trace, the seconds after its beginning at which a dotted red line stands.
        shades: For each trace, what is shaded: (begin, end) in seconds after its beginning.
        phases: Of the first trace: (name, seconds after its beginning), in order. Each lasts to the next, the last to
            the trace's end; every other one is shaded, and the names stand above.
    """
    plots.show(timelines(traces, marks, shades=shades, phases=phases), alt)


def timelines(traces, marks=(), row=ROW, shades=(), phases=()):
    """Return the figure that `show_traces` shows, for `explore`; the arguments are its and the height of a row."""
    figure, longest = _drawn(traces, row), max(trace.seconds for trace in traces.values())
    for panel, intervals in zip(figure.axes, shades):
        for interval in intervals:
            ends = [seconds / longest * panel.get_xlim()[1] for seconds in interval]
            panel.axvspan(*ends, color="tab:red", alpha=0.2, linewidth=0)
    for panel, seconds in zip(figure.axes, marks):
        panel.axvline(seconds / longest * panel.get_xlim()[1], color="tab:red", linestyle=":")
    if phases:
        _shade(figure.axes[0], phases, next(iter(traces.values())).seconds, longest)
    for panel in figure.axes:
        panel.set_yticks(panel.get_yticks(), _short([label.get_text() for label in panel.get_yticklabels()]))
    label, _, machine = panel.get_xlabel().partition(" on ")
    alike = len({trace.clock.machine.name for trace in traces.values()}) == 1
    where = f"\non {machine}" if alike else machine[machine.rindex(" (") :]  # in one line it would be cut off
    panel.set_xlabel(label + where)
    return figure


def part(trace, begin_s, end_s=None, links=True):
    """Return the part of a trace between two moments.

    Args:
        trace: A `Trace`.
        begin_s, end_s: On the simulated clock, in seconds.
        links: Whether links are in it, or hosts and GPUs alone.
    """
    found, begin = copy.copy(trace), round(begin_s * PS)
    end = trace.end if end_s is None else round(end_s * PS)
    found.spans = [s for s in trace.spans if s.end > begin and s.start < end and (links or s.kind != "copy")]
    found.begin, found.end = begin, end
    return found


def read_trace(path):
    """Return the trace in a file that `simgpu run --trace` wrote."""
    events = json.loads(Path(path).read_text(encoding="utf-8"))["traceEvents"]
    named = {e["pid"]: e["args"]["name"].partition(" (simulated ") for e in events if e["name"] == "process_name"}
    gpus = [place for place, *_ in named.values() if place.startswith("gpu")]
    trace = Trace(SimpleNamespace(machine=SimpleNamespace(name=named[0][2].removesuffix(")"), count=len(gpus))))
    for e in events:
        if e["ph"] == "X":
            start, end = round(e["ts"] * 1e6), round((e["ts"] + e["dur"]) * 1e6)
            place = named[e["pid"]][0]
            trace.spans.append(Span(e["cat"], place, e["tid"], e["name"], start, end, e["args"]["bytes"]))
    trace.begin, trace.end = trace.spans[0].start, max(span.end for span in trace.spans)
    return trace


def joined(trace, gap_s):
    """Return a trace in which neighbours of a kind, at most `gap_s` apart on a row, are one span: fewer bars."""
    found, spans, last = copy.copy(trace), [], {}
    for span in trace.spans:
        row = (span.kind, span.place, span.row)
        before = last.get(row)
        if before is not None and span.start - spans[before].end <= gap_s * PS:
            spans[before] = spans[before]._replace(end=max(spans[before].end, span.end))
        else:
            last[row] = len(spans)
            spans.append(span)
    found.spans = spans
    return found


def exposed_intervals(trace, place="gpu0"):
    """Return when collectives of a GPU run beside no operation: (begin, end) in seconds after the trace's beginning."""
    found, spans = [], [span for span in trace.spans if span.place == place]
    for span in spans:
        if span.kind == "communication":
            begin = max(span.start, trace.begin)
            for other in spans:  # in order of time
                if other.kind == "operation" and other.end > begin and other.start < span.end:
                    found += [(begin, other.start)] * (other.start > begin)
                    begin = other.end
            found += [(begin, span.end)] * (begin < span.end)
    return [((begin - trace.begin) / PS, (end - trace.begin) / PS) for begin, end in found]


def _recorded(function):
    for device in range(torch.sim.device_count()):
        torch.sim.synchronize(device)
    with simgpu.trace() as trace:
        function()
    return trace


def _drawn(traces, row):
    rows = [len({(span.place, span.row) for span in trace.spans}) for trace in traces.values()]
    with rc_context(plots.STYLE):
        figure = Figure(figsize=(WIDTH, 0.9 + sum(FRAME + row * count for count in rows)), layout="constrained")
        panels = figure.subplots(len(traces), 1, squeeze=False, height_ratios=[1.5 + count for count in rows])[:, 0]
        for panel, (title, trace) in zip(panels, traces.items()):
            trace.draw(panel, until=max(trace.seconds for trace in traces.values()))
            panel.set_title(f"{title}: {human(trace.seconds)}", fontsize=11, loc="left")
            panel.grid(axis="y", visible=False)
            if panel is not panels[-1]:
                panel.set_xlabel(None)
                panel.tick_params(labelbottom=False)
        kinds = {label: bar for panel in panels for bar, label in zip(*panel.get_legend_handles_labels())}
        figure.legend(kinds.values(), kinds, loc="outside upper left", ncols=2, frameon=False, fontsize=10.5)
    return figure


def _shade(panel, phases, end, longest):
    unit, ends = panel.get_xlim()[1] / longest, [begin for _, begin in phases[1:]] + [end]
    for i, ((name, begin), end) in enumerate(zip(phases, ends)):
        panel.axvspan(begin * unit, end * unit, color="black", alpha=0.08 * (i % 2), linewidth=0, zorder=0)
        middle = (begin + end) / 2 * unit
        panel.text(middle, 1.01, name, transform=panel.get_xaxis_transform(), ha="center", va="bottom", fontsize=10)
    lines = 1 + max(name.count("\n") for name, _ in phases)
    panel.set_title(panel.get_title(loc="left"), fontsize=11, loc="left", pad=4 + 13 * lines)


def _short(rows):
    names, streams = [], Counter()
    for row in rows:
        place, found, number = row.partition(" stream ")
        streams[place] += bool(found) and number != "0"
        n = streams[place] + 1
        names.append(place if n == 1 else f"{place} {_ORDINALS.get(n, f'{n}th')} stream")
    if "host" in rows:
        return names
    # Without a first thread the others are those of ranks, numbered from 1, and GPUs are numbered from 0.
    return [re.sub(r"^host thread (\d+)$", lambda found: f"host of gpu{int(found[1]) - 1}", name) for name in names]
