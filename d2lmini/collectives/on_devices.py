"""Collectives over tensors, one for each rank, in place, and the ledger of the messages that they sent."""

from collections.abc import Sequence

import torch

import simgpu
from d2lmini.collectives import executor, schedules
from d2lmini.collectives.ledger import Ledger, Message


@torch.no_grad()
def run(schedule: schedules.Schedule, tensors: Sequence[torch.Tensor], launches: str = "one") -> Ledger:
    """Carry out a schedule over tensors, and record the messages.

    Args:
        schedule: The schedule.
        tensors: One for each rank, all on the CPU or each on a device of its own; changed in place.
        launches: "one" kernel launch for the whole schedule, or "each" message's own.

    Returns:
        The `ledger.Ledger`.

    >>> tensors = [torch.arange(4.0), torch.zeros(4)]
    >>> ledger = collectives.run(collectives.schedules.scatter(2), tensors)
    >>> tensors[1].tolist()
    [0.0, 0.0, 2.0, 3.0]
    """
    if not tensors or tensors[0].device.type != "sim" or not simgpu.has_clock():
        executor.execute(schedule, tensors, launches)
        return _ledger(schedule, tensors[0])
    wires = []  # for each message its spans on the wires

    def copy(target, source):
        before = len(trace.spans)
        executor.copy(target, source)
        wires.append([span for span in trace.spans[before:] if span.kind == "copy"])

    with simgpu.trace() as trace:
        executor.execute(schedule, tensors, launches, copy)
    times = [_place_and_time(spans, trace.begin_s) for spans in wires]
    return _ledger(schedule, tensors[0], times, trace.seconds, trace.clock.machine.name)


def allreduce(
    tensors: Sequence[torch.Tensor], algorithm: str | schedules.Schedule = "ring", launches: str = "one", **options
) -> Ledger:
    """Replace each of `tensors`, one for each rank, by the sum of all; return the ledger.

    Args:
        tensors: as in `executor.execute`.
        algorithm: a name in `schedules.ALLREDUCE`, or a Schedule of your own.
        launches: as in `executor.execute`.
        options: those of the algorithm, such as `order` of a ring or `per_node` of a hierarchy.

    >>> simgpu.enable(4)
    >>> tensors = [torch.ones(8, device=f"sim:{rank}") for rank in range(4)]
    >>> ledger = collectives.allreduce(tensors, "ring")
    >>> tensors[3].tolist(), ledger.steps, ledger.sent()
    ([4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0, 4.0], 6, [48, 48, 48, 48])
    """
    if not isinstance(algorithm, schedules.Schedule):
        algorithm = schedules.named(algorithm, len(tensors), **options)
    return run(algorithm, tensors, launches)


def _place_and_time(spans, begin):
    start, end = min(span.start_s for span in spans), max(span.end_s for span in spans)
    return " + ".join(span.place for span in spans), start - begin, end - begin


def _ledger(schedule, tensor, times=None, seconds=None, clock=None):
    """Write down the messages; times: for each its link, begin and end, or None without a simulated clock."""
    sends = list(schedules.messages(schedule, tensor.numel()))
    lines = [
        Message(step, send.src, send.dst, (last - first) * tensor.itemsize, *place_and_time)
        for (step, send, first, last), place_and_time in zip(sends, times or [("memory", None, None)] * len(sends))
    ]
    steps = len(schedule.steps)
    return Ledger(schedule.name, schedule.world_size, steps, tensor.nbytes, tuple(lines), seconds, clock)
