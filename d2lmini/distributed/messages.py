"""Schedules between processes: every rank runs its own part with `torch.distributed`'s isend and irecv.

    rank r's buffer   │ chunk 0 │ chunk 1 │ chunk 2 │ …      sent from where it lies
                            ▲ add        ▲ lands here ("copy")
    scratch           │ slot 0 │ slot 1 │ …                  what is to be added lands here; the slots are used in turn

A rank sends what `program` says and no more: in the ring 2(P − 1)/P · n elements, in 2(P − 1) messages of n/P, each cut
into segments of at most SEGMENT bytes.

The numbers are those of `collectives`: the same schedule adds the same pairs, and a + b is b + a to the bit.
"""

from collections import defaultdict
from datetime import timedelta
from functools import lru_cache

import torch
import torch.distributed as dist

from d2lmini.distributed.agreement import Call, must_agree, whom_it_lacks
from d2lmini.distributed.program import program
from d2lmini.schedules import ALLREDUCE

SEGMENT = 4 * 1024 * 1024  # bytes; a message costs both processors some 50 µs, so short ones lose more than they win
SMALL = 64 * 1024  # bytes up to which asking early is worth one more copy
AHEAD = 8  # how many segments may be asked for before they are needed, each with a slot of scratch …
SCRATCH = 16 * 1024 * 1024  # … as far as they fit into so many bytes, but at least 2
COMBINE = {"sum": torch.add, "product": torch.mul, "min": torch.minimum, "max": torch.maximum}


def allreduce(tensor, op="sum", algorithm="ring", **options):
    """Replace `tensor` on every rank by the sum (product, min, max, mean) over all ranks; return it.

    algorithm: a name in `schedules.ALLREDUCE`. options: as of `execute`.
    """
    if algorithm not in ALLREDUCE:
        raise ValueError(f"unknown algorithm {algorithm!r}: choose one of {', '.join(ALLREDUCE)}")
    return execute(_schedule(algorithm, dist.get_world_size()), tensor, op, **options)


@lru_cache(maxsize=64)
def _schedule(algorithm, world_size):
    return ALLREDUCE[algorithm](world_size)


@torch.no_grad()
def execute(schedule, tensor, op="sum", timeout=30.0, check=None):
    """Run this rank's part of `schedule` on `tensor`, a CPU tensor, in place; return it. Every rank must call this.

    op: sum, product, min, max, or mean (of a floating-point type): the sum divided by the number of ranks.
    timeout: seconds that a message may take. check: compare with the other ranks first that all are about to do the
    same; by default the first time that this process runs this schedule on this shape, type and op.

    Raises ValueError for a tensor, op or schedule that cannot be run and where the ranks disagree, TimeoutError naming
    the rank waited for, ConnectionError when it has gone.
    """
    call = Call.next(schedule.name, tensor, op)
    must_be_possible(call, tensor)
    if schedule.world_size != call.world_size:
        raise ValueError(f"the schedule is for {schedule.world_size} ranks, and there are {call.world_size}")
    must_agree(call, timeout, check)
    flat = tensor.contiguous().view(-1)  # a copy if the tensor is not contiguous
    size = tensor.element_size()
    part = program(schedule, call.rank, flat.numel(), max(1, SEGMENT // size), SMALL // size)
    _Execution(part, flat, COMBINE[call.combine], call, timeout).run()
    if op == "mean":
        flat.div_(schedule.world_size)
    if flat.data_ptr() != tensor.data_ptr():
        tensor.copy_(flat.view_as(tensor))
    return tensor


def must_be_possible(call, tensor):
    """Raise ValueError for an op that is unknown or not for this type, and for a tensor on a device."""
    if call.combine not in COMBINE:
        raise ValueError(f"unknown op {call.op!r}: choose one of {', '.join(COMBINE)}, mean")
    if call.op == "mean" and not tensor.is_floating_point():
        raise ValueError(f"a mean needs a floating-point type, got {tensor.dtype}")
    if tensor.device.type != "cpu":
        raise ValueError(f"processes exchange CPU tensors, got one on {tensor.device}")


class _Execution:
    """One run of a program: `written` counts the received segments that have reached the buffer."""

    def __init__(self, part, flat, combine, call, timeout):
        self.part, self.flat, self.combine, self.call = part, flat, combine, call
        self.limit, self.timeout = timedelta(seconds=timeout), timeout
        self.sending, self.coming, self.asked = [None] * len(part.sends), {}, 0
        self.slots = _slots(flat, part)
        self.ready = defaultdict(list)
        for i, count in enumerate(part.ready):
            self.ready[count].append(i)

    def run(self):
        """Send, receive and add, in the program's order."""
        if all(move.buffered for move in self.part.receives):
            self._ask(0, -1)  # a short message to who has asked leaves at once; a long one had better leave from gloo's
        self._send(0)  # own thread, for while this thread sends, that one polls for a lock
        for place, move in enumerate(self.part.receives):
            self._ask(place, move.step)
            work, landed = self.coming.pop(place)
            self._wait(work, move)
            if move.buffered:
                self._let_leave(move.sends)
                here = self.flat[move.first : move.last]
                self.combine(here, landed, out=here) if move.op == "reduce" else here.copy_(landed)
            self._send(place + 1)
        self._let_leave(range(len(self.part.sends)))

    def _send(self, written):
        """Send all that is complete once so many segments have been written."""
        for i in self.ready[written]:
            move = self.part.sends[i]
            data = self.flat[move.first : move.last]
            data = data.clone() if move.buffered else data
            self.sending[i] = dist.isend(data, move.peer, tag=self.call.tag(move.number)), data

    def _ask(self, written, step):
        """Ask for segments ahead, as far as there is room, when `written` have been written in steps up to `step`."""
        receives = self.part.receives
        while self.asked < min(written + len(self.slots), len(receives)):
            move = receives[self.asked]
            if move.buffered:
                room = self.slots[self.asked % len(self.slots)][: move.last - move.first]
            elif move.after <= written and all(self.part.sends[i].step < step for i in move.sends):
                self._let_leave(move.sends)
                room = self.flat[move.first : move.last]
            else:
                return
            self.coming[self.asked] = dist.irecv(room, move.peer, tag=self.call.tag(move.number)), room
            self.asked += 1

    def _let_leave(self, sends):
        """Wait until these sends have left the buffer. Gloo lets each be waited for once."""
        for i in sends:
            if self.sending[i] is not None:
                self._wait(self.sending[i][0], self.part.sends[i])
                self.sending[i] = None

    def _wait(self, work, move):
        try:
            work.wait(self.limit)
        except RuntimeError as error:
            raise whom_it_lacks(self.call, move, self.timeout, error) from error


_scratch = torch.empty(0, dtype=torch.uint8)


def _slots(flat, part):
    """Return the slots of scratch for a program; their memory is kept for the next call, for fresh pages cost time."""
    global _scratch
    sizes = [move.last - move.first for move in part.receives if move.buffered]
    size = max(sizes, default=0) * flat.element_size()
    count = max(2, min(AHEAD, len(sizes), SCRATCH // max(1, size)))
    if _scratch.numel() < size * count:
        _scratch = torch.empty(size * count, dtype=torch.uint8)
    return [_scratch[i * size : (i + 1) * size].view(flat.dtype) for i in range(count)]
