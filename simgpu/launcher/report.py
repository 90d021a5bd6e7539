"""What a run took, from its timeline: busy, idle and exposed communication, memory, bytes, waits of the host."""

import json
import re
from collections import defaultdict

import simgpu
from simgpu.accounting.queues import PS

_NUMBER = re.compile(r" #\d+")


def write(path, recorder, stand_ins):
    """Write the report to a file: JSON where its name ends in .json, else one HTML page."""
    content = summary(recorder, stand_ins)
    if path.endswith(".json"):
        text = json.dumps(content, indent=1, ensure_ascii=False)
    else:
        from simgpu.launcher.page import page

        text = page(content)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def summary(recorder, stand_ins=None):
    """Return the report as JSON has it; times in simulated seconds, sizes in bytes."""
    gpus = [_gpu(place, recorder) for place in recorder.trace.busy_seconds()]
    traffic = sorted(simgpu.clock().traffic.items(), key=lambda item: -item[1][1])
    return {
        "machine": simgpu.machine().name,
        "ranks": len(recorder.ends),
        "seconds": recorder.seconds(),
        "steps": max(map(len, recorder.steps.values()), default=0),
        "step_seconds": recorder.step_seconds(),
        "gpus": gpus,
        "collectives": [
            {"name": name, "group": group, "calls": calls, "bytes": nbytes, "seconds": took / PS}
            for (name, group), (calls, nbytes, took) in traffic
        ],
        "host_waits": _waits(recorder.trace.spans),
        "stand_ins": dict(stand_ins.reads) if stand_ins else {},
    }


def _gpu(place, recorder):
    """Return one GPU's row: busy, exposed communication and idle add up to all of the time."""
    number = int(place.removeprefix("gpu"))
    spans = {
        kind: [(s.start, s.end) for s in recorder.trace.spans if s.place == place and s.kind == kind]
        for kind in ("operation", "communication")
    }
    busy, communicating = _length(spans["operation"]), _length(spans["communication"])
    either = _length(spans["operation"] + spans["communication"])
    total = round(recorder.seconds() * PS)
    return {
        "gpu": number,
        "busy_seconds": busy / PS,
        "communication_seconds": communicating / PS,
        "exposed_communication_seconds": (either - busy) / PS,
        "idle_seconds": max(0, total - either) / PS,
        "peak_bytes": recorder.peaks.get(number, 0),
        "held_at_peak": dict(sorted(recorder.held.get(number, {}).items(), key=lambda item: -item[1])),
    }


def _length(intervals):
    """Return the length of the union of (start, end) intervals."""
    total, reached = 0, 0
    for start, end in sorted(intervals):
        total += max(0, end - max(start, reached))
        reached = max(reached, end)
    return total


def _waits(spans):
    """Return what hosts stood still for, the longest first."""
    found = defaultdict(lambda: [0, 0])
    for span in spans:
        if span.kind == "wait":
            count = found[_NUMBER.sub("", span.name)]
            count[0] += 1
            count[1] += span.end - span.start
    ordered = sorted(found.items(), key=lambda item: -item[1][1])
    return [{"what": what, "calls": calls, "seconds": took / PS} for what, (calls, took) in ordered]
