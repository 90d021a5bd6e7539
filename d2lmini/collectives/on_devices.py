"""Runs a schedule over tensors, one a device, in place, and returns the ledger of its messages.

Each device has two queues, as GPUs have two engines for copies: a second stream sends, the current one receives and
adds. Between steps the two wait for each other, for another device only through a message; the host waits for nothing.

    rank 0   second stream    ▐ chunk 2 to rank 1 ▌                    all copies of a step run at the same time
             current stream   ▐ chunk 1 lands     ▌▐ add ▌
    rank 1   second stream    ▐ chunk 0 to rank 2 ▌                    what is to be added lands beside the buffer
"""

import contextlib
from functools import lru_cache, partial
from types import SimpleNamespace

import torch

from d2lmini import sim
from d2lmini.collectives import schedules
from d2lmini.collectives.ledger import Ledger, Message
from d2lmini.collectives.operands import must_agree

COMBINE = {
    "sum": lambda here, came: here.add_(came),
    "product": lambda here, came: here.mul_(came),
    "min": lambda here, came: here.clamp_(max=came),
    "max": lambda here, came: here.clamp_(min=came),
}


@torch.no_grad()
def run(schedule, tensors, op="sum", launches="one"):
    """Carry out `schedule` on `tensors`, rank r's being tensors[r], in place; return the `ledger.Ledger`.

    op: how a message is combined: sum, product, min or max.
    launches: "one" queues everything with a single launch, as a CUDA graph or NCCL's one kernel does; "each" has one
    for every copy and addition, which is what this code costs when nothing records it. Only simulated GPUs tell the
    two apart. Raises ValueError where the tensors are not alike, not apart in memory, or not as many as ranks.
    """
    if op not in COMBINE:
        raise ValueError(f"unknown op {op!r}: choose one of {', '.join(COMBINE)} (and mean, where one divides)")
    if launches not in ("one", "each"):
        raise ValueError(f"launches must be 'one' or 'each', got {launches!r}")
    must_agree(tensors, schedule.world_size)
    ranks, notes = [_Rank(tensor) for tensor in tensors], []
    with _recording(tensors, launches) as trace:
        for messages in _by_step(schedule, tensors[0].numel()):
            notes += _one_step(messages, ranks, trace, COMBINE[op])
        for rank in ranks:
            rank.finish()
    return _ledger(schedule, tensors[0], notes, trace)


def allreduce(tensors, algorithm="ring", op="sum", **options):
    """Replace each of `tensors`, one a rank, by the sum (or mean, min, max, product) of all; return the ledger.

    algorithm: a name in `schedules.ALLREDUCE`, or a Schedule of your own. options: those of the algorithm, such as
    `order` of a ring or `per_node` of a hierarchy, and `launches` of `run`.
    """
    if not isinstance(algorithm, schedules.Schedule):
        if algorithm not in schedules.ALLREDUCE:
            raise ValueError(f"unknown algorithm {algorithm!r}: choose one of {', '.join(schedules.ALLREDUCE)}")
        launches = {key: options.pop(key) for key in ("launches",) if key in options}
        make = schedules.ALLREDUCE[algorithm] if options else partial(_schedule, algorithm)
        algorithm, options = make(len(tensors), **options), launches
    return _combine(algorithm, tensors, op, tensors, options)


def broadcast(tensors, root=0, **options):
    """Make each of `tensors` equal to the root's; return the ledger."""
    return run(schedules.broadcast(len(tensors), root), tensors, **options)


def reduce(tensors, root=0, op="sum", **options):
    """Combine all of `tensors` in the root's; the others are left with partial results. Return the ledger."""
    return _combine(schedules.reduce(len(tensors), root), tensors, op, tensors[root : root + 1], options)


def scatter(tensors, root=0, **options):
    """Give rank r chunk r of the root's tensor, in the same place of its own; return the ledger.

    Chunks are those of ``flatten().tensor_split(P)``. The rest of the other ranks' tensors may be overwritten.
    """
    return run(schedules.scatter(len(tensors), root), tensors, **options)


def gather(tensors, root=0, **options):
    """Bring chunk r of rank r into the root's tensor, for every r; return the ledger. Chunks as in `scatter`."""
    return run(schedules.gather(len(tensors), root), tensors, **options)


def all_gather(tensors, **options):
    """Bring chunk r of rank r into every tensor, for every r; return the ledger. Chunks as in `scatter`."""
    return run(schedules.all_gather(len(tensors)), tensors, **options)


def reduce_scatter(tensors, op="sum", **options):
    """Leave rank r with chunk r of all tensors combined, the rest being partial; return the ledger."""
    schedule = schedules.reduce_scatter(len(tensors))
    return _combine(schedule, tensors, op, tensors, options)


def _combine(schedule, tensors, op, wanted, options):
    """Run a schedule that adds; for a mean, divide the `wanted` tensors afterwards."""
    must_divide(tensors, op)
    ledger = run(schedule, tensors, "sum" if op == "mean" else op, **options)
    with torch.no_grad():
        for tensor in wanted if op == "mean" else ():
            tensor.div_(schedule.world_size)
    return ledger


def must_divide(tensors, op):
    """Raise ValueError for the mean of tensors whose type has no fractions."""
    if op == "mean" and tensors and not (tensors[0].is_floating_point() or tensors[0].is_complex()):
        raise ValueError(f"a mean needs a floating-point type, got {tensors[0].dtype}")


@lru_cache(maxsize=64)
def _schedule(algorithm, world_size):
    return schedules.ALLREDUCE[algorithm](world_size)


# -- inside ----------------------------------------------------------------------------------------------------------


class _Rank:
    """One rank's tensor as a flat buffer, and the stream that sends from it where its device has streams."""

    def __init__(self, tensor):
        self.tensor, self.device = tensor, tensor.device
        self.flat = tensor if tensor.dim() == 1 else tensor.reshape(-1)  # a copy if the tensor is not contiguous
        self.parts = {}
        self.module = None if self.device.type == "cpu" else torch.get_device_module(self.device)
        self.second = self.module.Stream(self.device) if hasattr(self.module, "Stream") else None

    def part(self, first, last):
        """Return the elements [first, last) of the buffer; a view is made once, however many messages it serves."""
        if (first, last) not in self.parts:
            self.parts[first, last] = self.flat[first:last]
        return self.parts[first, last]

    def join(self):
        """Let both streams wait for what the other holds now."""
        if self.second is not None:
            current = self.module.current_stream(self.device)
            current.wait_stream(self.second)
            self.second.wait_stream(current)

    def sending(self):
        """Return a context manager in which copies from this device are queued in the second stream."""
        return contextlib.nullcontext() if self.second is None else self.module.stream(self.second)

    def finish(self):
        """Bring the result into the tensor."""
        self.join()
        if self.flat.data_ptr() != self.tensor.data_ptr():
            self.tensor.copy_(self.flat.view_as(self.tensor))


def _by_step(schedule, n):
    steps = [[] for _ in schedule.steps]
    for step, send, first, last in schedules.messages(schedule, n):
        steps[step].append((step, send, first, last))
    return steps


def _one_step(messages, ranks, trace, combine):
    """Send what a step sends, then combine; return (step, send, bytes, spans on the wires) of each message."""
    taking_part = [ranks[rank] for rank in {end for _, send, *_ in messages for end in (send.src, send.dst)}]
    for rank in taking_part:
        rank.join()
    notes, landed = [], []
    for step, send, first, last in messages:
        place = ranks[send.dst].part(first, last)
        beside = send.op == "reduce" or _still_sending(send.dst, first, last, messages)
        target = torch.empty_like(place) if beside else place
        before = len(trace.spans)
        with ranks[send.src].sending():
            target.copy_(ranks[send.src].part(first, last), non_blocking=True)
        notes.append((step, send, target.nbytes, trace.spans[before:]))
        landed += [(send.op, place, target)] if beside else []
    for rank in taking_part if landed else ():
        rank.join()  # what is to be overwritten has been sent
    for op, place, target in landed:
        (combine if op == "reduce" else torch.Tensor.copy_)(place, target)
    return notes


def _still_sending(rank, first, last, messages):
    return any(send.src == rank and start < last and first < stop for _, send, start, stop in messages)


@contextlib.contextmanager
def _recording(tensors, launches):
    """Yield something with `spans`: the simulated clock's trace, or an empty one without such a clock."""
    if tensors[0].device.type != "sim" or not sim.has_clock():
        yield SimpleNamespace(spans=[])
        return
    with sim.trace() as trace, sim.one_launch() if launches == "one" else contextlib.nullcontext():
        yield trace


def _ledger(schedule, tensor, notes, trace):
    timed = hasattr(trace, "clock")
    messages = []
    for step, send, nbytes, spans in notes:
        wires = [span for span in spans if span.kind == "copy"]
        link = " + ".join(span.place for span in wires) or "memory"
        start = min(span.start_s for span in wires) - trace.begin_s if wires else None
        end = max(span.end_s for span in wires) - trace.begin_s if wires else None
        messages.append(Message(step, send.src, send.dst, nbytes, link, start, end))
    return Ledger(
        schedule.name, schedule.world_size, len(schedule.steps), tensor.nbytes, tuple(messages),
        trace.seconds if timed else None, trace.clock.machine.name if timed else None,
    )  # fmt: skip
