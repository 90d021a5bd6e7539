"""Carries out a schedule on tensors, one for each rank, in place, and keeps no record: what training calls.

Each GPU has two queues, as it has two engines for copies: a second stream sends, the current one receives and adds.
Between steps the two wait for each other, for another GPU only through a message; the host waits for nothing.

    rank 0   second stream    ▐ chunk 2 to rank 1 ▌                    all copies of a step run at the same time
             current stream   ▐ chunk 1 lands     ▌▐ add ▌
    rank 1   second stream    ▐ chunk 0 to rank 2 ▌                    what is to be added lands beside the buffer
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple

import torch

import simgpu
from d2lmini.collectives.operands import must_agree
from d2lmini.collectives.schedules import Schedule, messages, named
from d2lmini.devices import streams


def copy(target: torch.Tensor, source: torch.Tensor) -> None:
    """Copy without letting the host wait."""
    target.copy_(source, non_blocking=True)


@torch.no_grad()
def execute(schedule: Schedule, tensors: Sequence[torch.Tensor], launches: str = "one", copy: Callable = copy) -> None:
    """Carry out `schedule` on `tensors`, rank r's being tensors[r], in place.

    What is reduced is added.

    Args:
        schedule: for as many ranks as there are tensors.
        tensors: alike in shape and type, apart in memory, each on a device of its own or all on the CPU.
        launches: "one" queues everything with a single launch, as a CUDA graph or NCCL's one kernel does; "each" has
            one for every copy and addition, which is what this code costs when nothing records it. Only simulated GPUs
            tell the two apart.
        copy: ``copy(target, source)`` is called for each message between GPUs, in the schedule's order.

    Raises:
        ValueError: where the tensors are not alike, not apart in memory, or not as many as ranks.
    """
    if launches not in ("one", "each"):
        raise ValueError(f"launches must be 'one' or 'each', got {launches!r}")
    must_agree(tensors, schedule.world_size)
    ranks = [_Rank(tensor) for tensor in tensors]
    clocked = tensors[0].device.type == "sim" and simgpu.has_clock()
    with simgpu.one_launch() if clocked and launches == "one" else contextlib.nullcontext():
        for transfers in _plan(schedule, tensors[0].numel()):
            _step(transfers, ranks, copy)
        for rank in ranks:
            rank.finish()


def sum_tensors(tensors: Sequence[torch.Tensor], algorithm: str = "ring") -> None:
    """Replace each of `tensors`, one for each rank, by the sum of all; algorithm: a name in `schedules.ALLREDUCE`."""
    execute(named(algorithm, len(tensors)), tensors)


class _Transfer(NamedTuple):
    """A message of some step: elements [first, last) from rank `src` to rank `dst`, which adds them if `adds`.

    Attributes:
        sent_there: Whether `dst` sends from these elements in the same step.
    """

    src: int
    dst: int
    part: tuple[int, int]
    adds: bool
    sent_there: bool


@lru_cache(maxsize=32)
def _plan(schedule, n):
    """Return the transfers of each step, for buffers of n elements."""
    steps = [[] for _ in schedule.steps]
    for step, send, *part in messages(schedule, n):
        steps[step].append((send, part))

    def sends_from(rank, part, sends):
        return any(s.src == rank and p[0] < part[1] and part[0] < p[1] for s, p in sends)

    return [
        [
            _Transfer(send.src, send.dst, tuple(part), send.op == "reduce", sends_from(send.dst, part, sends))
            for send, part in sends
        ]
        for sends in steps
    ]


class _Rank:
    """One rank's tensor as a flat buffer, and the stream that sends from it where its device has streams."""

    def __init__(self, tensor):
        self.tensor, self.device = tensor, tensor.device
        self.flat = tensor if tensor.dim() == 1 else tensor.reshape(-1)  # a copy if the tensor is not contiguous
        self.parts = {}
        self.module = streams(self.device)
        self.second = self.module.Stream(self.device) if self.module else None

    def part(self, ends):
        """Return the elements [first, last) of the buffer; a view is made once, however many messages it serves."""
        if ends not in self.parts:
            self.parts[ends] = self.flat[ends[0] : ends[1]]
        return self.parts[ends]

    def join(self):
        """Let both streams wait for what the other holds now."""
        if self.second is not None:
            current = self.module.current_stream(self.device)
            current.wait_stream(self.second)
            self.second.wait_stream(current)

    def finish(self):
        """Bring the result into the tensor."""
        self.join()
        if self.flat.data_ptr() != self.tensor.data_ptr():
            self.tensor.copy_(self.flat.view_as(self.tensor))


def _step(transfers, ranks, copy):
    """Send what a step sends, all at the same time, then add."""
    taking_part = [ranks[rank] for rank in {end for t in transfers for end in (t.src, t.dst)}]
    for rank in taking_part:
        rank.join()
    landed = []
    for t in transfers:
        place, sender = ranks[t.dst].part(t.part), ranks[t.src]
        target = torch.empty_like(place) if t.adds or t.sent_there else place
        with sender.module.stream(sender.second) if sender.module else contextlib.nullcontext():
            copy(target, sender.part(t.part))
        landed += [(torch.Tensor.add_ if t.adds else torch.Tensor.copy_, place, target)] if target is not place else []
    for rank in taking_part if landed else ():
        rank.join()  # what is to be overwritten has been sent
    for act, place, target in landed:
        act(place, target)
