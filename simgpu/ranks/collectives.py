"""The collectives, a class each: what one rank's call asks for, what must agree among ranks, and what they compute.

    process_group.allreduce  ──►  AllReduce(tensors, …)  ──►  rendezvous, until all ranks have called
                                  AllReduce.run(calls)   ◄──  the last rank to call carries it out for all

`run` is given all ranks' calls, in the order of their places. `sent` and `received` are then real tensors, those that
hold the values: lists of them, or for a list of tensors that is scattered or gathered lists of lists.
"""

import torch

from simgpu.ranks import schedules
from simgpu.ranks.call import Call, fit, put
from simgpu.ranks.reductions import combine
from simgpu.ranks.tensor_lists import nbytes


class AllReduce(Call):
    """Everybody receives the reduction of what all sent."""

    name, equal_shapes = "all_reduce", True

    @staticmethod
    def run(calls):
        """Combine one rank's tensor after the other, or as a schedule says."""
        if calls[0].sent[0].is_sparse:
            _add_sparse(calls)
            return
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

    name, equal_shapes, single = "all_gather", True, True

    def size(self, ranks):
        """Return the bytes of what everybody receives."""
        return nbytes(self.received)

    @staticmethod
    def run(calls):
        """Copy all ranks' tensors, end to end, into everybody's."""
        for place in range(len(calls[0].sent)):
            whole = torch.cat([call.sent[place].flatten() for call in calls])
            for call in calls:
                fit(call, call.received[place], calls[0], whole)
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
            put(call, call.received[0], root, piece)


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
                    fit(call, ours, other, piece)
                ours.copy_(combine([other.op for other in calls], [piece.reshape(ours.shape) for piece in pieces]))


class ReduceScatterSingle(Call):
    """Everybody receives its part of the reduction of tensors whose parts, end to end, belong to the ranks."""

    name, equal_shapes, single = "reduce_scatter", True, True

    @staticmethod
    def run(calls):
        """Combine the whole tensors and hand out the parts."""
        for place in range(len(calls[0].sent)):
            for call, part in zip(calls, _total(calls, place).view(len(calls), -1)):
                put(call, call.received[place], calls[0], part)


class AllToAll(Call):
    """Everybody receives from each the tensor that it sent to it."""

    name = "all_to_all"

    @staticmethod
    def run(calls):
        """Copy what each sends to each."""
        for receiver, call in enumerate(calls):
            for other, piece in zip(calls, call.received):
                put(call, piece, other, other.sent[receiver])


class AllToAllSingle(AllToAll):
    """The same with parts of one tensor's first dimension."""

    single = True


class Barrier(Call):
    """Everybody waits for all; the host waits too."""

    name = "barrier"

    def size(self, ranks):
        """Return the bytes of the all-reduce that a barrier is."""
        return 4


class MonitoredBarrier(Barrier):
    """As a barrier, which says who does not come. all_ranks: whether it says so of all, not of the first alone."""

    name = "monitored_barrier"

    def __init__(self, all_ranks):
        super().__init__([], [])
        self._all_ranks = all_ranks

    def late(self, own, missing):
        """Return torch's words: rank 0 of the group names those that do not come, the others name rank 0."""
        first = self.rendezvous.ranks[0]
        if self.rank != first:
            return (
                f"Rank {self.rank} successfully reached monitoredBarrier, but received errors while waiting for "
                f"send/recv from rank {first}. Please check rank {first} logs for faulty rank."
            )
        if not self.seconds:
            return f"Rank {first} timed out in monitoredBarrier after {self.seconds} ms."
        numbers = missing.split(" ", 1)[1]
        who = f"Ranks {numbers}" if self._all_ranks else f"Rank {numbers.partition(',')[0]}"
        return f"{who} failed to pass monitoredBarrier in {self.seconds * 1000:.0f} ms"


def _add_sparse(calls):
    for place in range(len(calls[0].sent)):
        total = calls[0].sent[place]
        for call in calls[1:]:
            total = total + call.sent[place]
        total = total.coalesce()
        for call in calls:
            call.received[place].copy_(total)


def _total(calls, place):
    return combine([call.op for call in calls], [call.sent[place] for call in calls])


def _gather(call, calls):
    for place, pieces in enumerate(call.received):
        for other, piece in zip(calls, pieces):
            put(call, piece, other, other.sent[place])
