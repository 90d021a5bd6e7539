"""Schedules between processes: every rank runs its own part, step by step, with torch.distributed's isend and irecv.

    rank r's buffer   │ chunk 0 │ chunk 1 │ chunk 2 │ …      sent from where it lies
    scratch           │ chunk 1 of a neighbour │             received here, then added to the buffer or copied over it

A rank sends what its schedule says and no more: in the ring 2(P − 1)/P · n elements, in 2(P − 1) messages of n/P.
The numbers are those of `collectives`: the same schedule adds the same pairs, and a + b is b + a to the bit.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.distributed as dist

from d2lmini.collectives.schedules import Schedule, messages, named
from d2lmini.distributed.handshake import Handshake


class Move(NamedTuple):
    """A message that a rank sends to, or receives from, `peer`: elements [first, last) of the buffer.

    Attributes:
        number: Its place among all of the schedule, the same on both sides.
        op: "reduce" where it is added, else "copy".
    """

    peer: int
    number: int
    op: str
    first: int
    last: int


@lru_cache(maxsize=256)
def plan(schedule: Schedule, rank: int, n: int) -> list[tuple[list[Move], list[Move]]]:
    """Return what a rank sends and what it receives, for each step in which it does something.

    Args:
        schedule: of the whole group.
        rank: whose part is asked for.
        n: elements of the buffer.
    """
    steps = {}
    for number, (step, send, first, last) in enumerate(messages(schedule, n)):
        for peer, me, kind in ((send.dst, send.src, 0), (send.src, send.dst, 1)):
            if me == rank:
                steps.setdefault(step, ([], []))[kind].append(Move(peer, number, send.op, first, last))
    return list(steps.values())


class Messages:
    """Collectives over messages between the ranks of the default group. Made after joining, in the same order by all.

    Args:
        timeout: Seconds that a message may take, by default as long as for the group's own calls.
    """

    def __init__(self, timeout: float | None = None):
        self.handshake = Handshake(timeout)

    def allreduce(self, tensor: torch.Tensor, algorithm: str = "ring") -> torch.Tensor:
        """Replace `tensor` on every rank by the sum over all ranks; return it.

        Args:
            tensor: On the CPU.
            algorithm: A name in `schedules.ALLREDUCE`.

        Raises:
            ValueError, TimeoutError, LostRankError: As `execute`.
        """
        return self._execute(named(algorithm, self.handshake.world_size), algorithm, tensor)

    def execute(self, schedule: Schedule, tensor: torch.Tensor) -> torch.Tensor:
        """Run this rank's part of a schedule in place and return the tensor. Every rank must call this.

        Args:
            schedule: Who sends what to whom; what it reduces is added.
            tensor: On the CPU.

        Raises:
            ValueError: A tensor or schedule that cannot be run, or the ranks disagree.
            TimeoutError: A rank does not come; it is named.
            LostRankError: A rank has ended or does not go on.
        """
        if schedule.world_size != self.handshake.world_size:
            raise ValueError(f"the schedule is for {schedule.world_size} ranks, not for {self.handshake.world_size}")
        return self._execute(schedule, f"{schedule.name} {schedule.mark:08x}", tensor)

    @torch.no_grad()
    def _execute(self, schedule, name, tensor):
        if tensor.device.type != "cpu":
            raise ValueError(f"processes exchange CPU tensors, got one on {tensor.device}")
        key = self.handshake.begin(f"{name} of {list(tensor.shape)} {str(tensor.dtype).removeprefix('torch.')}")
        flat = tensor.contiguous().view(-1)  # a copy if the tensor is not contiguous
        for sends, receives in plan(schedule, self.handshake.rank, len(flat)):
            self._step(sends, receives, flat, key)
        return tensor if flat.data_ptr() == tensor.data_ptr() else tensor.copy_(flat.view_as(tensor))

    def _step(self, sends, receives, flat, key):
        """Send and receive all messages of a step at the same time; then add, or copy, what has come."""
        scratch = flat.new_empty(sum(move.last - move.first for move in receives))
        parts = scratch.split([move.last - move.first for move in receives])
        begun = [dist.irecv(part, m.peer, tag=_tag(key, m)) for m, part in zip(receives, parts, strict=True)]
        begun += [dist.isend(flat[m.first : m.last], m.peer, tag=_tag(key, m)) for m in sends]
        for move, work in zip([*receives, *sends], begun, strict=True):
            try:
                work.wait(self.handshake.limit)
            except RuntimeError as error:
                raise self.handshake.lost(move.peer, late="imed out" in str(error)) from error
        for move, part in zip(receives, parts, strict=True):  # every send has left: it carried what was there before
            here = flat[move.first : move.last]
            here.add_(part) if move.op == "reduce" else here.copy_(part)


def _tag(key, move):
    return (key + move.number) & 0x7FFFFFFF
