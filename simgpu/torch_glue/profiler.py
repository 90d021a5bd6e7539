"""``torch.profiler``: beside what the host did, measured, what simulated GPUs did, in columns called SIM.

torch takes the events of a device from a library of its maker. Ours come from the clock's trace, when torch makes the
list of events; the file that ``export_chrome_trace`` writes holds the host's only, for theirs is `Trace.save`.

torch has one recorder in a process. Where several ranks profile at a time the first one has it, and the others go
without what their host did: their lists hold what their GPU did, and their files are the clock's.
"""

import json

from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from simgpu.device.state import state, to_sim
from simgpu.torch_glue.here import here


def begins(own):
    """Return the method that begins to record, with a trace of the simulated GPUs."""

    def begin(profiler):
        rank = here()
        if not hasattr(profiler, "_beside"):
            own(profiler)
        if to_sim(profiler.use_device) == "sim" and state.clock is not None:
            profiler._sim_trace = state.clock.trace().__enter__()
            profiler._sim_place = rank and f"gpu{rank.number - rank.device + state.current}"

    return begin


def ends(own):
    """Return the method that ends the recording."""

    def end(profiler, *error):
        trace = getattr(profiler, "_sim_trace", None)
        if trace:
            trace.__exit__(*error)
        if not hasattr(profiler, "_beside"):
            return own(profiler, *error)
        profiler.kineto_results, profiler._function_events, profiler._needs_processing = Beside(trace), None, True
        return False

    return end


def events(own):
    """Return the method that makes the list of events."""

    def parse(profiler, *args, **options):
        if state.as_cuda and profiler.use_device == "sim":
            profiler.use_device = "cuda"  # as the table's columns are called
        found = [] if hasattr(profiler, "_beside") else own(profiler, *args, **options)
        trace = getattr(profiler, "_sim_trace", None)
        spans = [span for span in trace.spans if span.kind in ("operation", "communication")] if trace else []
        if spans and profiler._sim_place:  # of its rank
            spans = [span for span in spans if span.place == profiler._sim_place]
        return found + [_event(number, span, trace) for number, span in enumerate(spans, len(found))]

    return parse


def _event(number, span, trace):
    begin, end = ((moment - trace.begin) / 1e6 for moment in (span.start, span.end))  # µs
    return FunctionEvent(
        number,
        span.name,
        span.row,
        begin,
        end,
        device_type=DeviceType.CUDA if state.as_cuda else DeviceType.PrivateUse1,
        use_device="cuda" if state.as_cuda else "sim",
        device_index=int(span.place.removeprefix("gpu")),
        device_resource_id=span.row,
        stack=[],
        input_shapes=[],
    )


class Beside:
    """Stands for torch's results on a rank that profiles while another one does. trace: the clock's, or None."""

    def __init__(self, trace):
        self._trace = trace

    def save(self, path):
        """Write a file in Chrome's trace format."""
        if self._trace:
            self._trace.save(path)
        else:
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"traceEvents": []}, file)


def init(own):
    """Return ``__init__`` of the old profiler, whose own way of timing this device fails at each operation."""

    def begin(profiler, *args, use_device=None, use_kineto=False, **options):
        use_device = to_sim(use_device)
        own(profiler, *args, use_device=use_device, use_kineto=use_kineto or use_device == "sim", **options)

    return begin


def alone(own):
    """Return the method that prepares to record, with torch's recorder on one rank at a time."""

    def prepare(profiler):
        rank = here()
        if rank is not None and (hasattr(profiler, "_beside") or rank.world.profiling not in (None, profiler)):
            profiler._beside = profiler.entered = True
            return
        if rank is not None:
            rank.world.profiling = profiler
        own(profiler)

    return prepare


def another(own):
    """Return the method that ends the recording, after which another rank may have torch's recorder."""

    def end(profiler, *error):
        try:
            return own(profiler, *error)
        finally:
            if here() is not None and here().world.profiling is profiler:
                here().world.profiling = None

    return end
