"""``torch.profiler``: beside what the host did, measured, what simulated GPUs did, in columns called SIM.

torch takes the events of a device from a library of its maker. Ours come from the clock's trace, when torch makes the
list of events; the file that ``export_chrome_trace`` writes holds the host's only, for theirs is `Trace.save`.
"""

from torch.autograd import DeviceType
from torch.autograd.profiler_util import FunctionEvent

from simgpu.device.state import state, to_sim
from simgpu.torch_glue.here import here


def begins(own):
    """Return the method that begins to record, with a trace of the simulated GPUs."""

    def begin(profiler):
        own(profiler)
        if profiler.use_device == "sim" and state.clock is not None:
            profiler._sim_trace = state.clock.trace().__enter__()

    return begin


def ends(own):
    """Return the method that ends the recording."""

    def end(profiler, *error):
        if hasattr(profiler, "_sim_trace"):
            profiler._sim_trace.__exit__(*error)
        return own(profiler, *error)

    return end


def events(own):
    """Return the method that makes the list of events."""

    def parse(profiler, *args, **options):
        found = own(profiler, *args, **options)
        trace = getattr(profiler, "_sim_trace", None)
        spans = [span for span in trace.spans if span.kind in ("operation", "communication")] if trace else []
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
        device_type=DeviceType.PrivateUse1,
        use_device="sim",
        device_index=int(span.place.removeprefix("gpu")),
        device_resource_id=span.row,
        stack=[],
        input_shapes=[],
    )


def init(own):
    """Return ``__init__`` of the old profiler, whose own way of timing this device fails at each operation."""

    def begin(profiler, *args, use_device=None, use_kineto=False, **options):
        use_device = to_sim(use_device)
        own(profiler, *args, use_device=use_device, use_kineto=use_kineto or use_device == "sim", **options)

    return begin


def alone(own):
    """Return the method that prepares to record, on one rank at a time: torch has one a process, or ends it."""

    def prepare(profiler):
        rank = here()
        if rank is not None:
            if rank.world.profiling not in (None, profiler):
                raise RuntimeError(
                    "expected one rank that profiles at a time: torch's profiler is one a process, "
                    "so let a single rank start it"
                )
            rank.world.profiling = profiler
        own(profiler)

    return prepare


def another(own):
    """Return the method that ends the recording, after which another rank may begin one."""

    def end(profiler, *error):
        try:
            return own(profiler, *error)
        finally:
            if here() is not None:
                here().world.profiling = None

    return end
