"""What happened between two moments of the simulated clock: a list of spans, sums over it, a file and a figure."""

import json
from collections import defaultdict
from os import PathLike
from typing import TYPE_CHECKING, Any, NamedTuple

from simgpu.accounting.queues import PS
from simgpu.hardware.arguments import not_negative

if TYPE_CHECKING:
    from simgpu.accounting.clock import Clock


class Span(NamedTuple):
    """One thing that took time.

    Attributes:
        kind: "operation" or "communication" on a GPU, "copy" on a wire, "launch", "work" or "wait" on the host.
        place: "gpu0", "host" or a wire's name.
        row: The number of the stream, or of the host's thread.
        name: The operation, the copy, or what the host waits for.
        start: When it began, in picoseconds since the clock started.
        end: When it ended, in picoseconds since the clock started.
        nbytes: Bytes read and written, sent or carried; 0 for the host.
    """

    kind: str
    place: str
    row: int
    name: str
    start: int
    end: int
    nbytes: int

    @property
    def start_s(self) -> float:
        """When it began, in seconds since the clock started."""
        return self.start / PS

    @property
    def end_s(self) -> float:
        """When it ended, in seconds since the clock started."""
        return self.end / PS

    @property
    def seconds(self) -> float:
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

    Attributes:
        clock: The clock whose work it records.
        spans: What took time, in order of time.
        begin: The first moment, in picoseconds since the clock started.
        end: The last moment, in picoseconds; work that was queued inside and ends later than the block counts.
    """

    def __init__(self, clock: "Clock") -> None:
        self.clock, self.begin, self.end = clock, 0, 0
        self.spans: list[Span] = []

    def __enter__(self) -> "Trace":
        with self.clock.lock:
            self.begin = self.clock.now_ps()
            self.clock.traces += (self,)
        return self

    def __exit__(self, *error: object) -> None:
        with self.clock.lock:
            self.clock.traces = tuple(trace for trace in self.clock.traces if trace is not self)
            self.spans.sort()  # threads may have added theirs in any order
            self.spans.sort(key=lambda span: span.start)
            self.end = max([self.clock.now_ps(), *(span.end for span in self.spans)])

    @property
    def begin_s(self) -> float:
        """When the block began, in seconds since the clock started."""
        return self.begin / PS

    @property
    def seconds(self) -> float:
        """Simulated seconds from the block's beginning to the end of the last thing queued in it."""
        return (self.end - self.begin) / PS

    def busy_seconds(self) -> dict[str, float]:
        """Return, for each GPU by its name, the seconds in which at least one of its streams ran an operation."""
        return {place: _covered(self._spans(place)) / PS for place in self._devices()}

    def idle_seconds(self) -> dict[str, float]:
        """Return, for each GPU by its name, the seconds in which no operation ran."""
        return {place: self.seconds - busy for place, busy in self.busy_seconds().items()}

    def link_bytes(self) -> dict[str, int]:
        """Return the bytes that each wire carried, for wires that carried any."""
        total: dict[str, int] = defaultdict(int)
        for span in self.spans:
            if span.kind == "copy":
                total[span.place] += span.nbytes
        return dict(sorted(total.items()))

    def save(self, path: str | PathLike[str]) -> None:
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

    def draw(self, axes: Any, until: float | None = None) -> Any:
        """Draw the timeline: one line for the host, each stream and each wire. Bars carry labels for a legend.

        Args:
            axes: Matplotlib's axes.
            until: The seconds at which the axis of time ends; by default those of this trace.

        Returns:
            The axes.

        Raises:
            ValueError: `until` is negative or not finite.
        """
        if until is not None:
            not_negative("the seconds at which the axis ends", until)
        rows = list(dict.fromkeys((span.place, span.row) for span in self.spans))
        rows.sort(key=lambda row: (row[0] != "host", not row[0].startswith("gpu"), row))
        longest = max(self.end - self.begin if until is None else round(until * PS), 1)
        unit, name = next((pair for pair in _UNITS if longest >= pair[0]), _UNITS[-1])
        for line, (place, row) in enumerate(rows):
            found: dict[str, list[Span]] = defaultdict(list)
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

    def __str__(self) -> str:
        lines = [f"simulated on {self.clock.machine.name}: {self.seconds * 1e3:.3f} ms"]
        for place, busy in self.busy_seconds().items():
            lines.append(f"  {place}: busy {busy * 1e3:.3f} ms, idle {(self.seconds - busy) * 1e3:.3f} ms")
        lines += [f"  {wire}: {count:,} bytes" for wire, count in self.link_bytes().items()]
        return "\n".join(lines)

    def _devices(self) -> list[str]:
        return [f"gpu{device}" for device in range(self.clock.machine.count)]

    def _spans(self, place: str) -> list[tuple[int, int]]:
        return sorted((s.start, s.end) for s in self.spans if s.place == place and s.kind == "operation")


_KINDS = list(COLOURS)
_WIDTH = 300  # points, about: of a timeline in the book
_UNITS = ((PS, "s"), (PS // 10**3, "ms"), (PS // 10**6, "µs"))


def _edge(points: float, colour: str) -> tuple[str, float]:
    """Return colour and width of a bar's edge: a white one parts it from the next, or its own makes it wide enough."""
    return ("white", 0.4) if points > 4 else (colour, max(0.0, round(1.2 - points, 1)))


def _label(span: Span) -> str:
    return "message" if span.kind == "communication" and span.name.startswith("send ") else NAMES[span.kind]


def _covered(intervals: list[tuple[int, int]]) -> int:
    """Return the length of the union of sorted (start, end) intervals."""
    total, reached = 0, 0
    for start, end in intervals:
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _row_name(place: str, row: int) -> str:
    if place == "host":
        return f"thread {row}" if row else ""
    return f"stream {row}" if place.startswith("gpu") else ""


def _name(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": kind, "pid": pid, "tid": tid, "args": {"name": name}}
