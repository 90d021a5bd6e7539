"""Where ranks meet: collectives are matched by their number in a group, messages by their ends and tag.

NCCL's messages are matched in order: a pair's, but for those of a batch, share one stream, so each rank's next one must
be the other side of the other rank's next one.

The last rank to call a collective carries it out for all. Each call is compared with the first one's when it is made,
so that what does not fit together is told at once, by the rank that made the second call.
"""

from collections import deque

import torch
from torch.distributed import DistBackendError

from simgpu.ranks.backend_rules import shown
from simgpu.ranks.call import Message
from simgpu.ranks.diagnosis import place as line
from simgpu.ranks.errors import MismatchError, in_words
from simgpu.ranks.work import Work


class Rendezvous:
    """One group of ranks.

    Args:
        ranks: Their numbers among all.
        where: The group in words.
        costs: The `CommunicationCosts`, which say when a call is over.
        made: In words, the line of the program that makes the group; for error messages.
    """

    def __init__(self, ranks, where, costs, made=""):
        self.ranks, self.where, self._costs, self.made = tuple(ranks), where, costs, made
        self._numbers = [0] * len(self.ranks)
        self._meetings, self._posts = {}, {}  # works by number and place; works by target, tag and side
        self._lines = {}  # of messages in order: for a pair, {place: its works that are not done}
        self._mismatches = {}  # what was said of what did not fit, by a collective's number or the Work left alone
        self._broken = ""  # which call was given up, in words

    def join(self, place, call, owner):
        """Add the call of the rank at `place` of the group; return its Work."""
        self._numbers[place] += 1
        call.rank, call.number, call.rendezvous = self.ranks[place], self._numbers[place], self
        owner.world.scheduler.expire(owner.now_ps(), self._meetings.get(call.number, {}).values())
        self._check_whole(call)
        call.line = line()
        try:
            return self._add(place, call, owner)
        except MismatchError as error:
            self._mismatches.setdefault(call.number, str(error))
            raise

    def _add(self, place, call, owner):
        works = self._meetings.setdefault(call.number, {})
        if works:
            _compare(call, next(iter(works.values())).call)
        self._check_gpu(call, owner, works.values())
        call.ready = owner.depart(call)
        work = works[place] = Work(call, owner)
        if len(works) == len(self.ranks):
            self._carry_out([works[i] for i in range(len(self.ranks))])
            del self._meetings[call.number]
        return work

    def _carry_out(self, works):
        calls = [work.call for work in works]
        _act(calls)
        end = self._costs.collective(calls, [work.owner for work in works])
        for work in works:
            work.finish(end)

    def post(self, place, call, owner):
        """Add a message's sending or receiving side; return its Work."""
        call.rank, call.rendezvous, call.line = self.ranks[place], self, line()
        self._check_whole(call)
        call.ready = owner.depart(call)
        work = Work(call, owner)
        if call.backend == "nccl" and not call.batched:
            return self._line_up(place, work)
        source, target = call.ends
        tag = f"nccl's, batched: {call.batched}" if call.backend == "nccl" else call.tag  # which knows no tags
        posts = self._posts.setdefault((target, tag), (deque(), deque()))  # those that send, those that receive
        mine, others = posts if call.name == "send" else posts[::-1]
        other = next((o for o in others if _meet(o.call.ends[0], source)), None)
        if other is None:
            mine.append(work)
        else:
            others.remove(other)
            self._deliver(*((work, other) if call.name == "send" else (other, work)))
        return work

    def _line_up(self, place, work):
        """Add a message to those of its pair that run in the order of the calls; deliver what has come to the front."""
        source, target = work.call.ends
        line = self._lines.setdefault(frozenset(work.call.ends), {source: deque(), target: deque()})
        line[place].append(work)
        while all(line.values()):
            first, other = line[source][0], line[target][0]
            if first.call.name == other.call.name:
                break
            sending, receiving = (first, other) if first.call.name == "send" else (other, first)
            line[source].popleft(), line[target].popleft()
            self._deliver(sending, receiving)
        return work

    def _deliver(self, sending, receiving):
        self._check_gpu(receiving.call, receiving.owner, [sending])
        receiving.call.source = sending.call.ends[0]
        try:
            _compare(receiving.call, sending.call)
            _act([sending.call, receiving.call])
        except MismatchError as error:
            self._mismatches[sending] = self._mismatches[receiving] = str(error)
            raise
        end = self._costs.message(sending.call, receiving.call, sending.owner, receiving.owner)
        sending.finish(end)
        receiving.finish(end)

    def give_up(self, work):
        """End the call of a work whose time is over, and the group's use; return all works of the call."""
        self._broken = self._broken or f"{work.call} timed out on {in_words([work.rank])}"
        if work.call.number:
            return list(self._meetings[work.call.number].values())
        return [work]

    def _check_whole(self, call):
        if self._broken:
            raise DistBackendError(f"{call}: Connection closed by peer: {self._broken}, which ends the group's use")

    def missing(self, work):
        """Return the ranks that `work` still waits for, none where any would do."""
        if not work.call.number:
            return [self.ranks[end] for end in work.call.ends if end is not None and self.ranks[end] != work.rank]
        called = self._meetings[work.call.number]
        return [rank for place, rank in enumerate(self.ranks) if place not in called]

    def crossed(self, work):
        """Return the message of the other rank that is first in line where it and `work`'s are of one kind, or None."""
        line = self._lines.get(frozenset(work.call.ends)) if isinstance(work.call, Message) else None
        if not line or work not in [other for side in line.values() for other in side]:
            return None
        theirs = next(side for place, side in line.items() if self.ranks[place] != work.rank)
        return theirs[0] if theirs else None

    @staticmethod
    def _check_gpu(call, owner, others):
        """Raise torch's error where another rank of the communicator has its tensors on the same GPU."""
        for other in others if call.device is not None and call.backend != "gloo" else ():
            if (
                other.owner is not owner
                and other.call.device is not None
                and other.owner.gpu(other.call) == owner.gpu(call)
            ):
                raise DistBackendError(
                    f"{call}: Duplicate GPU detected: rank {call.rank} and rank {other.rank} both on "
                    f"{shown(f'sim:{call.device}')}: call torch.{shown('sim')}.set_device(local_rank) first"
                )

    def mismatch(self, work):
        """Return what was said of what `work` is part of, where it did not fit and the program went on, or None."""
        return self._mismatches.get(work.call.number or work)

    def open(self):
        """Return the works that nobody has completed, and that nobody has given up."""
        if self._broken:
            return []
        works = [work for called in self._meetings.values() for work in called.values()]
        sides = [side for posts in self._posts.values() for side in posts]
        sides += [side for line in self._lines.values() for side in line.values()]
        return works + [work for side in sides for work in side]


def _meet(one, other):
    return one is None or other is None or one == other


@torch.no_grad()
def _act(calls):
    calls[-1].run(calls)


def _compare(call, first):
    """Raise MismatchError unless two ranks' calls fit together."""
    made = call.rendezvous.made
    if call.number and call.name != first.name:
        raise MismatchError(
            f"call #{call.number} of {call.where}{made}: rank {call.rank} calls "
            f"{call.name}{call.details()}{call.line}, rank {first.rank} called "
            f"{first.name}{first.details()}{first.line}"
        )
    for word, value in call.same.items():
        if value != first.same.get(word):
            raise MismatchError(
                f"{call}{call.details()}{made}: rank {call.rank} has {word} {value}{call.line}, "
                f"rank {first.rank} has {first.same.get(word)}{first.line}"
            )


class NewGroups:
    """The calls of ``dist.new_group`` that `size` ranks have made, all of them equally many.

    torch names a group by the number of the call: a rank that leaves one out takes part in other groups than it means.
    """

    def __init__(self, size):
        self._counts, self._first = [0] * size, []  # for each call the ranks of the group that was made first

    def call(self, rank, ranks):
        """Note a rank's next call, for a group of `ranks`; other ranks' may be for others at the same time."""
        if self._counts[rank] == len(self._first):
            self._first.append(ranks)
        self._counts[rank] += 1

    def lacking(self):
        """Return the first call that ranks left out as (its number, the group's ranks, those ranks), or None."""
        number = min(self._counts)
        if number == len(self._first):
            return None
        return number + 1, self._first[number], [rank for rank, count in enumerate(self._counts) if count == number]
