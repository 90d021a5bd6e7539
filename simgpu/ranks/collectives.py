"""The collectives, a class each: what one rank's call asks for, what must agree among ranks, and what they compute.

    process_group.allreduce  ──►  AllReduce(tensors, …)  ──►  rendezvous, until all ranks have called
                                  AllReduce.run(calls)   ◄──  the last rank to call carries it out for all

`run` is given all ranks' calls, in the order of their places. `sent` and `received` are then real tensors, those that
hold the values: lists of them, or for a list of tensors that is scattered or gathered lists of lists.
"""

import torch

from simgpu.ranks import schedules
from simgpu.ranks.errors import MismatchError
from simgpu.ranks.reductions import combine
from simgpu.ranks.reductions import name as name_of
from simgpu.ranks.tensor_lists import dtypes, flat, nbytes, real, shapes, unwrap


class Call:
    """What one rank asks of its group.

    sent, received: the tensors that it gives and those that it wants filled. results: what its Work returns.
    root: a place in the group. op: a ReduceOp. schedule: what carries an all-reduce, or an algorithm's name; None for
    what a library would choose. The rest is filled in on the way: on_host, whether the tensors are the host's own;
    same, {word: value} that must agree among the ranks; rank, number and rendezvous where it is made; ready, the
    picosecond at which it may begin.
    """

    name = ""
    equal_shapes = False  # whether the shapes of what ranks send must be equal

    def __init__(self, sent, received, root=None, op=None, results=None, schedule=None):
        self.sent, self.received, self.root, self.op = unwrap(sent), unwrap(received), root, op
        self.results = self.received if results is None else unwrap(results)
        self.schedule, self.on_host, self.same = schedule, False, {}
        self.rank, self.number, self.rendezvous, self.ready = -1, 0, None, 0

    def __str__(self):
        return f"{self.name} #{self.number} of {self.where}"

    @property
    def where(self):
        """The group, in words."""
        return self.rendezvous.where

    def tensors(self):
        """Return all tensors of the call in one list."""
        return flat([self.sent, self.received, self.results])

    def settle(self, on_host, size):
        """Note what must agree and how many bytes count, of a call in a group of `size`; keep the real tensors."""
        self.on_host = on_host
        if self.tensors():
            self.same = {"type": dtypes(self.sent or self.received), "device": "cpu" if on_host else "sim"}
        if self.op is not None:
            self.same["reduction"] = name_of(self.op)
        if self.equal_shapes:
            self.same["shapes"] = shapes(self.sent)
        self.same["root"] = self.root
        self.nbytes = self.size(size)
        self.sent, self.received = real(self.sent), real(self.received)

    def size(self, ranks):
        """Return the bytes that the cost counts: of the whole buffer, in a group of so many ranks."""
        return nbytes(self.sent)

    @staticmethod
    def run(calls):
        """Carry out the calls of all ranks."""


class AllReduce(Call):
    """Everybody receives the reduction of what all sent."""

    name, equal_shapes = "all_reduce", True

    @staticmethod
    def run(calls):
        """Combine one rank's tensor after the other, or as a schedule says."""
        if calls[0].schedule is not None and not isinstance(calls[0].schedule, str):
            schedules.run(calls[0].schedule, calls)
            return
        for place in range(len(calls[0].sent)):
            total = _total(calls, place)
            for call in calls:
                call.received[place].copy_(total)


class Reduce(Call):
    """The root receives the reduction of what all sent."""

    name, equal_shapes = "reduce", True

    @staticmethod
    def run(calls):
        """Combine one rank's tensor after the other."""
        for place, ours in enumerate(calls[calls[0].root].received):
            ours.copy_(_total(calls, place))


class Broadcast(Call):
    """Everybody receives what the root sent."""

    name, equal_shapes = "broadcast", True

    @staticmethod
    def run(calls):
        """Copy the root's tensors into those of the others."""
        root = calls[calls[0].root]
        for call in calls:
            if call is not root:
                for ours, theirs in zip(call.received, root.sent):
                    ours.copy_(theirs)


class AllGather(Call):
    """Everybody receives what each sent, in one list for each tensor."""

    name = "all_gather"

    def size(self, ranks):
        """Return the bytes of what all send."""
        return ranks * nbytes(self.sent)

    @staticmethod
    def run(calls):
        """Copy each rank's tensors into its place of all lists."""
        for call in calls:
            _gather(call, calls)


class AllGatherSingle(Call):
    """Everybody receives what all sent, one after the other in one tensor."""

    name, equal_shapes = "all_gather", True

    def size(self, ranks):
        """Return the bytes of what everybody receives."""
        return nbytes(self.received)

    @staticmethod
    def run(calls):
        """Copy all ranks' tensors, end to end, into everybody's."""
        for place in range(len(calls[0].sent)):
            whole = torch.cat([call.sent[place].flatten() for call in calls])
            for call in calls:
                _fit(call, call.received[place], calls[0], whole)
                call.received[place].copy_(whole.view(call.received[place].shape))


class Gather(AllGather):
    """The root receives what each sent, in one list for each tensor."""

    name = "gather"

    @staticmethod
    def run(calls):
        """Copy each rank's tensors into its place of the root's lists."""
        _gather(calls[calls[0].root], calls)


class Scatter(Call):
    """Everybody receives its tensor of the list that the root sent."""

    name = "scatter"

    def size(self, ranks):
        """Return the bytes of the root's list."""
        return ranks * nbytes(self.received)

    @staticmethod
    def run(calls):
        """Copy the root's tensors to their places."""
        root = calls[calls[0].root]
        for call, piece in zip(calls, root.sent):
            _put(call, call.received[0], root, piece)


class ReduceScatter(Call):
    """Everybody receives the reduction of the tensors that all sent to it, one of each rank's list."""

    name = "reduce_scatter"

    @staticmethod
    def run(calls):
        """Combine what is for each place, one rank's tensor after the other."""
        for receiver, call in enumerate(calls):
            for place, ours in enumerate(call.received):
                pieces = [other.sent[place][receiver] for other in calls]
                for other, piece in zip(calls, pieces):
                    _fit(call, ours, other, piece)
                ours.copy_(combine([other.op for other in calls], [piece.reshape(ours.shape) for piece in pieces]))


class ReduceScatterSingle(Call):
    """Everybody receives its part of the reduction of tensors whose parts, end to end, belong to the ranks."""

    name, equal_shapes = "reduce_scatter", True

    @staticmethod
    def run(calls):
        """Combine the whole tensors and hand out the parts."""
        for place in range(len(calls[0].sent)):
            for call, part in zip(calls, _total(calls, place).view(len(calls), -1)):
                _put(call, call.received[place], calls[0], part)


class AllToAll(Call):
    """Everybody receives from each the tensor that it sent to it."""

    name = "all_to_all"

    @staticmethod
    def run(calls):
        """Copy what each sends to each."""
        for receiver, call in enumerate(calls):
            for other, piece in zip(calls, call.received):
                _put(call, piece, other, other.sent[receiver])


class Barrier(Call):
    """Everybody waits for all; the host waits too."""

    name = "barrier"

    def size(self, ranks):
        """Return the bytes of the all-reduce that a barrier is."""
        return 4


class MonitoredBarrier(Barrier):
    """As a barrier, which says who does not come."""

    name = "monitored_barrier"


class Message(Call):
    """One side of a message.

    ends: the places that send and receive, None for a sender that may be any. batched: whether it is one of a batch.
    source: the place that it was received from.
    """

    def __init__(self, sent, received, ends, tag, batched):
        super().__init__(sent, received)
        self.ends, self.tag, self.batched, self.source = ends, tag, batched, -1

    def __str__(self):
        return f"{self.name}{f' with tag {self.tag}' if self.tag else ''} in {self.where}"

    def size(self, ranks):
        """Return the bytes of the tensor."""
        return nbytes(self.sent or self.received)

    @staticmethod
    def run(calls):
        """Copy what the first of two calls sends into the second's tensor."""
        sending, receiving = calls
        for ours, theirs in zip(receiving.received, sending.sent):
            _put(receiving, ours, sending, theirs)


class Send(Message):
    """The side that sends a tensor."""

    name = "send"


class Recv(Message):
    """The side that receives a tensor."""

    name = "recv"


def _total(calls, place):
    return combine([call.op for call in calls], [call.sent[place] for call in calls])


def _gather(call, calls):
    for place, pieces in enumerate(call.received):
        for other, piece in zip(calls, pieces):
            _put(call, piece, other, other.sent[place])


def _put(call, ours, other, theirs):
    _fit(call, ours, other, theirs)
    ours.copy_(theirs.reshape(ours.shape))


def _fit(call, ours, other, theirs):
    """Raise MismatchError unless a piece has as many elements, of the same type, as the rank that receives it wants."""
    if ours.numel() != theirs.numel() or ours.dtype != theirs.dtype:
        raise MismatchError(
            f"{call.name}: rank {call.rank} expects {_text(ours)} from rank {other.rank}, which sends {_text(theirs)}"
        )


def _text(tensor):
    return f"{str(tensor.dtype).removeprefix('torch.')} {list(tensor.shape)}"
