"""What a collective costs on a machine's wires: rings and chains of messages, as NCCL's large-message algorithms.

    all_reduce                   2(P − 1) steps around a ring, a P-th of the bytes on each edge
    all_gather, reduce_scatter   P − 1 such steps; nbytes is the size of the whole
    broadcast, reduce            along the ring from or to the root, cut into pieces that follow one another
    all_to_all                   P − 1 steps: in step t rank r sends to rank r + t; nbytes is a table, from and to
    gather, scatter              P − 1 steps: the root and one other

A step takes as long as its busiest wire. A collective holds all its wires from its first step to its last.
"""

from collections import defaultdict, namedtuple

from d2lmini.hardware.costs import copy_seconds
from d2lmini.sim.model import messages
from d2lmini.sim.model.streams import PS
from d2lmini.sim.ranks import schedules, values

PIECES = 8  # assumed: into how many a broadcast is cut, so that all edges of its chain are busy at once

Step = namedtuple("Step", "count sends")  # so many steps alike; sends: (from, to, bytes) between places of the group


def steps(name, size, nbytes, root=0):
    """Return the `Step`s of a collective between `size` ranks."""
    if name == "all_to_all":
        shifted = [[(place, (place + t) % size) for place in range(size)] for t in range(1, size)]
        return [Step(1, [(*edge, nbytes[edge[0]][edge[1]]) for edge in edges]) for edges in shifted]
    share = [nbytes // size + (place < nbytes % size) for place in range(size)]
    around = [(place, (place + 1) % size, share[place]) for place in range(size)]
    if size == 1:
        return []
    if name in ("all_reduce", "barrier", "monitored_barrier"):
        return [Step(2 * (size - 1), around)]
    if name in ("all_gather", "reduce_scatter"):
        return [Step(size - 1, around)]
    if name in ("gather", "scatter"):
        others = [place for place in range(size) if place != root]
        return [Step(1, [(place, root, share[place]) if name == "gather" else (root, place, share[place])])
                for place in others]  # fmt: skip
    return _chain(name, size, nbytes, root)


def _chain(name, size, nbytes, root):
    """A broadcast from the root along the ring, or a reduction, which goes the same way back."""
    pieces = [nbytes // PIECES + (i < nbytes % PIECES) for i in range(PIECES)]
    edges = [((root + i) % size, (root + i + 1) % size) for i in range(size - 1)]
    if name == "reduce":
        edges = [edge[::-1] for edge in reversed(edges)]
    return [Step(1, [(*edge, pieces[t - i]) for i, edge in enumerate(edges) if 0 <= t - i < PIECES])
            for t in range(size - 1 + PIECES - 1)]  # fmt: skip


class Prices:
    """Puts collectives and messages on the clock, or does nothing where there is none."""

    def __init__(self, clock):
        self._clock, self._known = clock, {}

    def collective(self, calls, owners):
        """Occupy each rank's communication stream and the wires; return the moment at which all is over."""
        if self._clock is None:
            return 0
        call, devices = calls[0], tuple(owner.number for owner in owners)
        nbytes = max(call.nbytes for call in calls)
        if call.name == "all_to_all":
            nbytes = tuple(tuple(values.nbytes([part]) for part in call.sent) for call in calls)
        key = call.name, devices, nbytes, call.root or 0, call.schedule
        plan = self._known.get(key) or self._known.setdefault(key, self._plan(*key))
        streams = [owner.stream(call.where) for owner in owners]
        duration, wires = sum(step.count * took for step, took, _ in plan), {w for _, _, used in plan for w in used}
        start = messages.carry(self._clock, streams, wires, max(call.ready for call in calls), duration)
        if self._clock.traces:
            self._write(str(call), plan, streams, start)
        return start + duration

    def alone(self, name, size, nbytes):
        """Return the picoseconds that a collective of the first `size` GPUs takes, or a message between two of them."""
        if name == "send":
            plan = self._priced([Step(1, [(0, 1, nbytes)])], (0, 1)) if size > 1 else ()
        else:
            table = ((nbytes // size,) * size,) * size if name == "all_to_all" else nbytes
            plan = self._plan(name, tuple(range(size)), table, 0, None)
        return sum(step.count * took for step, took, _ in plan)

    def message(self, sending, receiving, sender, receiver):
        """Occupy both ends' streams for this pair and the wires between them; return when the message is there."""
        ready = max(sending.ready, receiving.ready)
        if self._clock is None or sender is receiver:
            return ready
        ends = sender.number, receiver.number
        plan = self._priced([Step(1, [(0, 1, sending.nbytes)])], ends)
        pair = f"{sending.where} {min(ends)}–{max(ends)}"
        streams, (_, duration, wires) = [sender.stream(pair), receiver.stream(pair)], plan[0]
        start = messages.carry(self._clock, streams, wires, ready, duration)
        if self._clock.traces:
            self._write(f"send {sending.rank}→{receiving.rank} in {sending.where}", plan, streams, start)
        return start + duration

    def _plan(self, name, devices, nbytes, root, schedule):
        if schedule is not None:
            return self._priced([Step(1, sends) for sends in schedules.sizes(schedule, nbytes)], devices)
        return self._priced(steps(name, len(devices), nbytes, root), devices)

    def _priced(self, steps, devices):
        """Return for each Step: itself, the picoseconds that one of it takes, and {wire: bytes}."""
        plan = []
        for step in steps:
            longest, busy, carried = 0.0, defaultdict(float), defaultdict(int)
            for source, target, nbytes in step.sends:
                hops = self._clock.machine.route(devices[source], devices[target])
                took = [copy_seconds(nbytes, hop.link) for hop in hops]
                longest = max(longest, sum(took))
                for hop, seconds in zip(hops, took):
                    for wire in hop.wires:
                        busy[wire] += seconds
                        carried[wire] += nbytes
            plan.append((step, round(max(longest, *busy.values()) * PS), carried))
        return plan

    def _write(self, name, plan, streams, start):
        """Write spans: for each step, one for each rank that sends and one for each wire."""
        total, number = sum(step.count for step, _, _ in plan), 0
        for step, took, carried in plan:
            sent = defaultdict(int)
            for source, target, nbytes in step.sends:
                sent[source] += nbytes
                sent[target] += 0
            for _ in range(step.count):
                number += 1
                label, end = f"{name}, step {number} of {total}", start + took
                for place, nbytes in sorted(sent.items()):
                    stream = streams[place]
                    messages.note(self._clock, "communication", f"gpu{stream.device}", stream.number, label, start,
                                  end, nbytes)  # fmt: skip
                for wire, nbytes in carried.items():
                    messages.note(self._clock, "copy", wire, 0, label, start, end, nbytes)
                start = end
