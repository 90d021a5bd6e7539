"""What a collective or a message costs on a machine, and which wires it holds meanwhile.

By default that is what a library's collective takes, `hardware.collective_costs`, with the algorithm and protocol that
it would choose; it goes by the links that `link_traffic` says. An all-reduce that a schedule carries takes its own
steps, each as long as its busiest wire. A message from rank to rank takes its route. A collective holds all its wires
from its beginning to its end. The host's own tensors stay in its memory, or go between nodes as a GPU's do.
"""

from collections import defaultdict, namedtuple

from simgpu.accounting import communication
from simgpu.accounting.queues import PS
from simgpu.hardware.collective_costs import estimate
from simgpu.hardware.op_costs import copy_seconds
from simgpu.hardware.rings import group
from simgpu.ranks import link_traffic, schedules
from simgpu.ranks.tensor_lists import nbytes as nbytes_of

HOST_BYTES_PER_S, HOST_S = 10e9, 50e-6  # assumed: what a core copies in memory; what gloo takes for nothing
_OPERATIONS = {"all_to_all": "alltoall", "barrier": "all_reduce", "monitored_barrier": "all_reduce"}

# Passes over a rank's buffer, as a ring makes them, less what is its own.
_COPIES = {
    "all_reduce": 2,
    "all_gather": 1,
    "reduce_scatter": 1,
    "broadcast": 1,
    "reduce": 1,
    "all_to_all": 1,
    "gather": 1,
    "scatter": 1,
}

# how: what carries it, in words. steps: one after the other.
Plan = namedtuple("Plan", "how steps")
Step = namedtuple("Step", "took sent carried")  # picoseconds; bytes by GPU, in all and that it sends; bytes by wire


class CommunicationCosts:
    """Puts collectives and messages on the clock, or does nothing where there is none."""

    def __init__(self, clock):
        self._clock, self._known = clock, {}

    def collective(self, calls, owners):
        """Occupy each rank's communication stream and the wires; return the moment at which all is over."""
        if self._clock is None:
            return 0
        call, devices = calls[0], tuple(owner.gpu(call) for owner, call in zip(owners, calls, strict=True))
        nbytes = max(call.nbytes for call in calls)
        if call.name == "all_to_all":
            nbytes = tuple(tuple(nbytes_of([part]) for part in call.sent) for call in calls)
        if call.name in _COPIES and self._in_memory(call, devices):
            passes = _COPIES[call.name] * (len(devices) - 1) / len(devices)
            return self._by_memory(call, max(call.ready for call in calls), passes, _whole(nbytes))
        key = call.name, devices, nbytes, call.root or 0, call.schedule
        plan = self._known.get(key) or self._known.setdefault(key, self._plan(*key))
        streams = [owner.stream(call.rendezvous, gpu) for owner, gpu in zip(owners, devices, strict=True)]
        name = f"{call}, {_size(_whole(nbytes))}{plan.how}"
        return self._occupy(plan, streams, max(call.ready for call in calls), name, call)

    def _in_memory(self, call, devices):
        """Say whether the tensors are the host's own, and all ranks on one host; or two ranks' on one GPU, by gloo."""
        if len(set(devices)) < len(devices):
            return True
        each = getattr(self._clock.machine, "node", self._clock.machine).count
        return call.on_host and len({device // each for device in devices}) == 1

    def _by_memory(self, call, ready, passes, nbytes):
        """Return when a call on the host's own tensors is over, which copies them in its memory so many times."""
        end = ready + round((HOST_S + passes * nbytes / HOST_BYTES_PER_S) * PS)
        if self._clock.traces:
            communication.note(self._clock, "work", "host", 0, f"{call}, {_size(nbytes)} in memory", ready, end, nbytes)
        return end

    def alone(self, name, size, nbytes):
        """Return the picoseconds that a collective of the first `size` GPUs takes, or a message between two of them."""
        if name == "send":
            return self._step([(0, 1, nbytes)]).took if size > 1 else 0
        return round(estimate(_OPERATIONS.get(name, name), self._clock.machine, size, nbytes).seconds * PS)

    def message(self, sending, receiving, sender, receiver):
        """Occupy both ends' streams for this pair and the wires between them; return when the message is there."""
        ready = max(sending.ready, receiving.ready)
        if self._clock is None or sender is receiver:
            return ready
        ends = sender.gpu(sending), receiver.gpu(receiving)
        if self._in_memory(sending, ends):
            return self._by_memory(sending, ready, passes=1, nbytes=sending.nbytes)
        both = sending.batched and receiving.batched
        pair = "{}→{}".format(*ends) if both else "{}–{}".format(*sorted(ends))
        pair = sending.rendezvous, pair
        streams = [owner.stream(pair, gpu) for owner, gpu in zip((sender, receiver), ends, strict=True)]
        name = f"send {sending.rank}→{receiving.rank} in {sending.where}"
        return self._occupy(Plan("", [self._step([(*ends, sending.nbytes)])]), streams, ready, name, sending)

    def _occupy(self, plan, streams, ready, name, call):
        duration = sum(step.took for step in plan.steps)
        count = self._clock.traffic.setdefault((call.name, call.where), [0, 0, 0])
        count[0] += 1
        count[1] += sum(sum(step.sent.values()) for step in plan.steps)
        count[2] += duration
        wires = {wire for step in plan.steps for wire in step.carried}
        start = communication.carry(self._clock, streams, wires, ready, duration)
        if self._clock.traces:
            self._write(name, plan.steps, {stream.device: stream for stream in streams}, start)
        return start + duration

    # -- what is planned ---------------------------------------------------------------------------------------------

    def _plan(self, name, devices, nbytes, root, schedule):
        if schedule is None or isinstance(schedule, str):
            return self._library(name, devices, nbytes, root, schedule)
        return Plan(
            "",
            [
                self._step([(devices[a], devices[b], part) for a, b, part in sends])
                for sends in schedules.sizes(schedule, nbytes)
            ],
        )

    def _library(self, name, devices, nbytes, root, algorithm):
        name, machine = _OPERATIONS.get(name, name), self._clock.machine
        found = estimate(name, machine, devices, _whole(nbytes), root, algorithm)
        sends = link_traffic.sends(found.algorithm, name, machine, devices, nbytes, root)
        how = "" if found.algorithm == "none" else f", {found.algorithm} {found.protocol}"
        routed = machine if found.algorithm == "direct" else group(machine, devices).machine
        return Plan(how, [self._step(sends, routed)._replace(took=round(found.seconds * PS))])

    def _step(self, sends, machine=None):
        """Return the `Step` of messages sent at once, which takes as long as the busiest wire."""
        machine = machine or self._clock.machine
        longest, busy, sent, carried = 0.0, defaultdict(float), defaultdict(int), defaultdict(int)
        for source, target, nbytes in sends:
            sent[source] += nbytes
            sent[target] += 0
            hops = machine.route(source, target)
            took = [copy_seconds(nbytes, hop.link) for hop in hops]
            longest = max(longest, sum(took))
            for hop, seconds in zip(hops, took):
                for wire in hop.wires:
                    busy[wire] += seconds
                    carried[wire] += nbytes
        return Step(round(max(longest, *busy.values()) * PS) if busy else 0, dict(sent), dict(carried))

    def _write(self, name, steps, streams, start):
        """Write spans: for each step, one for each rank that sends or receives and one for each wire."""
        for number, step in enumerate(steps, 1):
            label = name if len(steps) == 1 else f"{name}, step {number} of {len(steps)}"
            end = start + step.took
            for gpu, nbytes in sorted(step.sent.items()):
                communication.note(
                    self._clock, "communication", f"gpu{gpu}", streams[gpu].number, label, start, end, nbytes
                )
            for wire, nbytes in step.carried.items():
                communication.note(self._clock, "copy", wire, 0, label, start, end, nbytes)
            start = end


def _size(nbytes):
    power = next((power for power in (3, 2, 1) if nbytes >= 1024**power), 0)
    return f"{nbytes / 1024**power:.4g} {('B', 'KiB', 'MiB', 'GiB')[power]}"


def _whole(nbytes):
    """Return the size of a rank's buffer; in an all_to_all, of one that loads all as the busiest rank is loaded."""
    if isinstance(nbytes, int):
        return nbytes
    size = len(nbytes)
    moved = [max(sum(row) - row[i], sum(other[i] for other in nbytes) - row[i]) for i, row in enumerate(nbytes)]
    return -(-max(moved) * size // (size - 1)) if size > 1 else sum(nbytes[0])
