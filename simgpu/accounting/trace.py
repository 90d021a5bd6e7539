"""What happened between two moments of the simulated clock: a list of spans, sums over it, a file and a figure."""

import json
from collections import defaultdict, namedtuple

from simgpu.accounting.queues import PS


class Span(namedtuple("Span", "kind place row name start end nbytes")):
    """One thing that took time: `start` and `end` in picoseconds since the clock started.

    kind: "operation" or "communication" on a device, "copy" on a wire, "launch", "work" or "wait" on the host. place:
    "gpu0", "host" or a wire's name. row: the stream's number, or the host's thread. nbytes: read and written, sent, or
    carried; 0 for the host.
    """

    __slots__ = ()

    @property
    def start_s(self):
        """When it began, in seconds since the clock started."""
        return self.start / PS

    @property
    def end_s(self):
        """When it ended, in seconds since the clock started."""
        return self.end / PS

    @property
    def seconds(self):
        """How long it took."""
        return (self.end - self.start) / PS


COLOURS = {
    "operation": "tab:blue",
    "copy": "#dd6b00",
    "launch": "tab:green",
    "work": "tab:red",
    "communication": "tab:purple",
    "wait": "0.5",
}
NAMES = {
    "operation": "operation on the GPU",
    "copy": "copy on a link",
    "launch": "launch by the host",
    "work": "work of the host",
    "communication": "collective",
    "wait": "wait of the host",
}


class Trace:
    """Records while used as a context manager; read it afterwards.

    spans: the events, in order of time. begin, end: the first and last moment in picoseconds; work that was queued
    inside and ends later than the block counts.
    """

    def __init__(self, clock):
        self.clock, self.spans, self.begin, self.end = clock, [], 0, 0

    def __enter__(self):
        with self.clock.lock:
            self.begin = self.clock.now_ps()
            self.clock.traces += (self,)
        return self

    def __exit__(self, *error):
        with self.clock.lock:
            self.clock.traces = tuple(trace for trace in self.clock.traces if trace is not self)
            self.spans.sort()  # threads may have added theirs in any order
            self.spans.sort(key=lambda span: span.start)
            self.end = max([self.clock.now_ps(), *(span.end for span in self.spans)])

    @property
    def begin_s(self):
        """When the block began, in seconds since the clock started."""
        return self.begin / PS

    @property
    def seconds(self):
        """Simulated seconds from the block's beginning to the end of the last thing queued in it."""
        return (self.end - self.begin) / PS

    def busy_seconds(self):
        """Return, for each device, the seconds in which at least one of its streams ran an operation."""
        return {place: _covered(self._spans(place)) / PS for place in self._devices()}

    def idle_seconds(self):
        """Return, for each device, the seconds in which no operation ran."""
        return {place: self.seconds - busy for place, busy in self.busy_seconds().items()}

    def link_bytes(self):
        """Return the bytes that each wire carried, for wires that carried any."""
        total = defaultdict(int)
        for span in self.spans:
            if span.kind == "copy":
                total[span.place] += span.nbytes
        return dict(sorted(total.items()))

    def save(self, path):
        """Write JSON in Chrome's trace format, which Perfetto and chrome://tracing open; times in microseconds."""
        places = list(dict.fromkeys(["host", *self._devices(), *self.link_bytes()]))
        events = [
            _name("process_name", pid, 0, f"{place} (simulated {self.clock.machine.name})")
            for pid, place in enumerate(places)
        ]
        for place, row in sorted({(span.place, span.row) for span in self.spans}):
            events.append(_name("thread_name", places.index(place), row, _row_name(place, row)))
        events += [
            {
                "ph": "X",
                "name": span.name,
                "cat": span.kind,
                "pid": places.index(span.place),
                "tid": span.row,
                "ts": span.start / 1e6,
                "dur": (span.end - span.start) / 1e6,
                "args": {"bytes": span.nbytes},
            }
            for span in self.spans
        ]
        with open(path, "w", encoding="utf-8") as file:
            json.dump({"traceEvents": events, "displayTimeUnit": "ns"}, file, ensure_ascii=False)

    def draw(self, axes, until=None):
        """Draw the timeline on matplotlib's `axes`: one line for the host, each stream and each wire; return `axes`.

        until: the seconds at which the axis of time ends, by default those of this trace. Bars carry labels for a
        legend.
        """
        rows = list(dict.fromkeys((span.place, span.row) for span in self.spans))
        rows.sort(key=lambda row: (row[0] != "host", not row[0].startswith("gpu"), row))
        longest = max(self.end - self.begin if until is None else round(until * PS), 1)
        unit, name = next((pair for pair in _UNITS if longest >= pair[0]), _UNITS[-1])
        for line, (place, row) in enumerate(rows):
            found = defaultdict(list)
            for span in sorted(self.spans, key=lambda span: _KINDS.index(span.kind)):  # as a legend lists them
                if (span.place, span.row) == (place, row):
                    found[_label(span)].append(span)
            for label, spans in found.items():
                bars = [((s.start - self.begin) / unit, (s.end - s.start) / unit) for s in spans]
                colour = COLOURS[spans[0].kind]
                edges, widths = zip(*[_edge(_WIDTH * (s.end - s.start) / longest, colour) for s in spans])
                style = {"facecolor": colour, "edgecolors": edges, "linewidth": widths, "label": label}
                axes.broken_barh(bars, (line - 0.4, 0.8), **style)
        axes.set_yticks(range(len(rows)), [f"{place} {_row_name(place, row)}".strip() for place, row in rows])
        axes.invert_yaxis()
        axes.set(xlabel=f"simulated time on {self.clock.machine.name} ({name})", xlim=(0, longest / unit))
        return axes

    def __str__(self):
        lines = [f"simulated on {self.clock.machine.name}: {self.seconds * 1e3:.3f} ms"]
        for place, busy in self.busy_seconds().items():
            lines.append(f"  {place}: busy {busy * 1e3:.3f} ms, idle {(self.seconds - busy) * 1e3:.3f} ms")
        lines += [f"  {wire}: {count:,} bytes" for wire, count in self.link_bytes().items()]
        return "\n".join(lines)

    def _devices(self):
        return [f"gpu{device}" for device in range(self.clock.machine.count)]

    def _spans(self, place):
        return sorted((s.start, s.end) for s in self.spans if s.place == place and s.kind == "operation")


_KINDS = list(COLOURS)
_WIDTH = 300  # points, about: of a timeline in the book
_UNITS = ((PS, "s"), (PS // 10**3, "ms"), (PS // 10**6, "µs"))


def _edge(points, colour):
    """Return colour and width of a bar's edge: a white one parts it from the next, or its own makes it wide enough."""
    return ("white", 0.4) if points > 4 else (colour, max(0.0, round(1.2 - points, 1)))


def _label(span):
    return "message" if span.kind == "communication" and span.name.startswith("send ") else NAMES[span.kind]


def _covered(intervals):
    """Return the length of the union of sorted (start, end) intervals."""
    total, reached = 0, 0
    for start, end in intervals:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _row_name(place, row):
    if place == "host":
        return f"thread {row}" if row else ""
    return f"stream {row}" if place.startswith("gpu") else ""


def _name(kind, pid, tid, name):
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
