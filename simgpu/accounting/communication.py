"""Collectives and messages between simulated GPUs on the clock: what they occupy, and when."""

from simgpu.accounting.clock import Clock
from simgpu.accounting.trace import Span

hold = Clock.hold


def begin(clock, device, now):
    """Give the calling thread its own row of the timeline, the one of `device`, and its first moment."""
    with clock.lock:
        host = clock._host()
        host.row, host.now = 1 + device, now


def depart(clock, device):
    """Queue a call on the device's current stream, at the cost of a launch; return when what stands before it ends."""
    with clock.lock:
        host = clock._host()
        host.now += host.launch
    return clock.mark(clock.current_stream(device))


def carry(clock, streams, wires, earliest, duration):
    """Occupy streams and wires: from when all are free, and `earliest` at the soonest.

    Args:
        clock: The `Clock`.
        streams: `Queue`s.
        wires: Names of wires, as `Hop.wires`.
        earliest, duration: In picoseconds.

    Returns:
        The start, in picoseconds.
    """
    with clock.lock:
        start = max([earliest, *(stream.end for stream in streams), *(clock._wires.get(wire, 0) for wire in wires)])
        for wire in wires:
            clock._wires[wire] = start + duration
        for stream in streams:
            clock.hold(stream, start + duration)
    return start


def note(clock, kind, place, row, name, start, end, nbytes):
    """Write one span into the traces that are open."""
    with clock.lock:
        clock._log(Span(kind, place, row, name, start, end, nbytes))
