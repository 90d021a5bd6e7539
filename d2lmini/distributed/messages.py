"""Schedules between processes: every rank runs its own part, step by step, with torch.distributed's isend and irecv.

    rank r's buffer   │ chunk 0 │ chunk 1 │ chunk 2 │ …      sent from where it lies
                            ▲ add        ▲ lands here ("copy")
    scratch           │ a segment to be added │ …            what is to be added lands here first

A rank sends what its schedule says and no more: in the ring 2(P − 1)/P · n elements, in 2(P − 1) messages of n/P. Each
is cut into segments, so that one is added while the next is on its way. Short messages are asked for before the first
step: to who has asked they leave at once. Long ones are sent before any is asked for, and so leave from gloo's own
thread: while this thread sends, that one polls for a lock.

The numbers are those of `collectives`: the same schedule adds the same pairs, and a + b is b + a to the bit.
"""

from functools import lru_cache
from typing import NamedTuple

import torch
import torch.distributed as dist

from d2lmini.collectives.schedules import messages, named
from d2lmini.distributed.handshake import Handshake

SEGMENT = 1024 * 1024  # bytes; a message costs both processors some 50 µs, so short ones lose more than they win
SMALL = 128 * 1024  # bytes of all that a rank receives in a call, up to which it asks for everything at once


class Move(NamedTuple):
    """One segment that a rank sends to, or receives from, `peer`: elements [first, last) of the buffer.

    number: its place among all of the schedule, the same on both sides. room: where it lands in scratch, [room, room +
    last − first); None where it lands in the buffer.
    """

    peer: int
    number: int
    op: str
    first: int
    last: int
    room: int | None = None


@lru_cache(maxsize=256)
def plan(schedule, rank, n, size):
    """Return rank `rank`'s steps for `n` elements of `size` bytes, how many elements of scratch they need, and whether
    all that it receives is so short that it lands in scratch, and can be asked for before the first step.

    A step is (sends, receives, clash): moves at the same time, and whether something is both sent and overwritten.
    """
    moves = _moves(schedule, rank, n, SEGMENT // size)
    small = sum(move.last - move.first for _, receives in moves for move in receives) * size <= SMALL
    steps, used, most = [], 0, 0
    for sends, receives in moves:
        used = used if small else 0  # else every step uses it anew
        clash = any(r.first < s.last and s.first < r.last for r in receives for s in sends)
        for i, move in enumerate(receives):
            if small or clash or move.op == "reduce":
                receives[i], used = move._replace(room=used), used + move.last - move.first
        steps.append((sends, receives, clash))
        most = max(most, used)
    return steps, most, small


def _moves(schedule, rank, n, segment):
    """Return what a rank sends and what it receives, for each step in which it does something."""
    moves, number = {}, 0
    for step, send, first, last in messages(schedule, n):
        for begin in range(first, last, segment):
            if rank in (send.src, send.dst):
                peer, kind = (send.dst, 0) if send.src == rank else (send.src, 1)
                move = Move(peer, number, send.op, begin, min(begin + segment, last))
                moves.setdefault(step, ([], []))[kind].append(move)
            number += 1
    return list(moves.values())


class Messages:
    """Collectives over messages between the ranks of the default group. Made after joining, in the same order by all.

    timeout: seconds that a message may take, by default as long as for the group's own calls.
    """

    def __init__(self, timeout=None):
        self.handshake, self.scratch = Handshake(timeout), torch.empty(0, dtype=torch.uint8)

    def allreduce(self, tensor, algorithm="ring"):
        """Replace `tensor` on every rank by the sum over all ranks; return it.

        algorithm: a name in `schedules.ALLREDUCE`. Raises as `execute` does.
        """
        return self._execute(named(algorithm, self.handshake.world_size), algorithm, tensor)

    def execute(self, schedule, tensor):
        """Run this rank's part of `schedule` on `tensor`, a CPU tensor, in place; return it. Every rank must call this.

        What the schedule reduces is added. Raises ValueError for a tensor or schedule that cannot be run and where the
        ranks disagree, TimeoutError naming a rank that does not come, LostRankError where one has ended or does not go
        on.
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
        steps, most, small = plan(schedule, self.handshake.rank, len(flat), tensor.itemsize)
        if most * tensor.itemsize > len(self.scratch):  # it is kept, for the system takes its time to give memory
            self.scratch = torch.empty(most * tensor.itemsize, dtype=torch.uint8)
        scratch = self.scratch[: most * tensor.itemsize].view(tensor.dtype)
        self._perform(steps, small, flat, scratch, key)
        return tensor if flat.data_ptr() == tensor.data_ptr() else tensor.copy_(flat.view_as(tensor))

    def _perform(self, steps, small, flat, scratch, key):
        def ask(move):
            room = move.room
            place = flat[move.first : move.last] if room is None else scratch[room : room + move.last - move.first]
            return place, dist.irecv(place, move.peer, tag=(key + move.number) & 0x7FFFFFFF)

        asked = {move: ask(move) for _, receives, _ in steps for move in receives if small}
        earlier = []  # sends that were not waited for: what they carry must not be overwritten
        for sends, receives, clash in steps:
            sent = [
                (move, dist.isend(flat[move.first : move.last], move.peer, tag=(key + move.number) & 0x7FFFFFFF))
                for move in sends
            ]
            if any(move.room is None for move in receives):
                self._wait(earlier)
            landing = [(move, *(asked.get(move) or ask(move))) for move in receives]
            for move, place, work in landing:
                self._wait([(move, work)])
                self._wait(earlier)
                if clash:  # every send of a step carries what was there before it
                    self._wait(sent)
                here = flat[move.first : move.last]
                if move.op == "reduce":
                    here.add_(place)
                elif move.room is not None:
                    here.copy_(place)
            earlier += sent
        self._wait(earlier)

    def _wait(self, moves):
        while moves:
            move, work = moves.pop(0)
            try:
                work.wait(self.handshake.limit)
            except RuntimeError as error:
                raise self.handshake.lost(move.peer, late="imed out" in str(error)) from error
