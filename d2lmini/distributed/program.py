"""One rank's part of a schedule, cut into segments: what it sends and receives, and what each of these waits for.

A long message is cut into segments, so that a rank adds one segment while the next is on its way, and passes the first
on while the last has not come yet. A ring of 3 ranks, seen from one rank, 4 segments a chunk:

    received       step 0: a b c d │ step 1: e f g h │ …      in this order, some of them asked for ahead of time
    added             a b c d        e f g h
    sent  step 0: 4   a' b' c' d'    e' f' g' h'              a' leaves when a has been added: it does not wait for d

Nothing here knows of tensors or processes; `plan` puts it into an order, and `messages` executes that.
"""

from dataclasses import dataclass, field

from d2lmini.collectives.schedules import messages


@dataclass
class Move:
    """One segment that a rank sends or receives: elements [first, last) to or from `peer` in `step`.

    number: the segment's place among all of the schedule, the same on both sides. op: as in `Send`.
    sends: of a received segment, the places in `Program.sends` of what must have left before it may be written.
    buffered: received into scratch, or sent from a copy, because the buffer itself is not free in that step.
    after: of a received segment, how many others must have been written before it may be asked for.
    """

    step: int
    peer: int
    first: int
    last: int
    op: str
    number: int
    sends: list = field(default_factory=list)
    buffered: bool = False
    after: int = 0

    def overlaps(self, other):
        """Return whether both touch a common element."""
        return self.first < other.last and other.first < self.last


@dataclass
class Program:
    """What one rank does: `sends[i]` leaves when the first `ready[i]` segments of `receives` have been written."""

    sends: list
    receives: list
    ready: list


def program(schedule, rank, n, segment, small=0):
    """Return rank `rank`'s Program for a buffer of `n` elements in segments of at most `segment` elements.

    What has at most `small` elements is received into scratch, so that it can be asked for early.

    No rank waits in a circle: a wait in step t is only for sends of earlier steps, or for a peer that still is in an
    earlier step, so the rank in the earliest step always goes on.
    """
    sends, receives, number = [], [], 0
    for step, send, first, last in messages(schedule, n):
        for begin in range(first, last, segment):
            end = min(begin + segment, last)
            if send.src == rank:
                sends.append(Move(step, send.dst, begin, end, send.op, number))
            elif send.dst == rank:
                receives.append(Move(step, send.src, begin, end, send.op, number))
            number += 1
    ready = [_ready(send, receives) for send in sends]
    for receive in receives:
        receive.buffered = receive.op == "reduce" or receive.last - receive.first <= small
        _depend(receive, receives, sends)
    return Program(sends, receives, ready)


def _ready(send, receives):
    """Return after how many receives a send holds what it must: those of earlier steps that write what it reads."""
    earlier = [i for i, receive in enumerate(receives) if receive.step < send.step and receive.overlaps(send)]
    return earlier[-1] + 1 if earlier else 0


def _depend(receive, receives, sends):
    """Note what must have left, and what must have been written, before a segment may come in."""
    for i, send in enumerate(sends):
        if send.step < receive.step and send.overlaps(receive):
            receive.sends.append(i)
        elif send.step == receive.step and send.overlaps(receive):
            send.buffered = receive.buffered = True  # every send of a step reads what was there before the step
    writes = [i for i, other in enumerate(receives) if other.step < receive.step and other.overlaps(receive)]
    receive.after = writes[-1] + 1 if writes else 0
