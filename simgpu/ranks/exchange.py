"""Where ranks meet: collectives are matched by their number in a group, messages by their ends and tag.

The last rank to call a collective carries it out for all. Each call is compared with the first one's when it is made,
so that what does not fit together is told at once, by the rank that made the second call.
"""

from collections import deque
from dataclasses import dataclass

import torch

from simgpu.ranks.errors import MismatchError
from simgpu.ranks.work import Work


@dataclass
class Call:
    """What one rank asks for.

    name: of the collective. sent, received: the real tensors, or lists of them, that it gives and wants filled.
    same: {word: value} that must agree among the ranks. act: does it, given all ranks' calls. nbytes: what the cost
    counts. results: what its Work returns. on_host: whether the tensors are the host's. root: a place in the group.
    reduction: a ReduceOp. schedule: what carries it, or an algorithm's name; None for what a
    library would choose. tag, batched: of a message: what tells it from others, and whether it is one of a batch.
    """

    name: str
    sent: list
    received: list
    same: dict
    act: object
    nbytes: int
    results: list
    on_host: bool = False
    root: int | None = None
    reduction: object = None
    schedule: object = None
    tag: int = 0
    batched: bool = False
    source: int = -1
    rank: int = -1  # this and what follows is filled in by `Exchange`
    number: int = 0
    exchange: object = None
    ready: int = 0

    def __str__(self):
        if self.number:
            return f"{self.name} #{self.number} of {self.where}"
        return f"{self.name}{f' with tag {self.tag}' if self.tag else ''} in {self.where}"

    @property
    def where(self):
        """The group, in words."""
        return self.exchange.where


class Exchange:
    """One group of ranks.

    ranks: their numbers among all; where: the group in words; prices: `costs.Prices`, which sets when a call is over.
    """

    def __init__(self, ranks, where, prices):
        self.ranks, self.where, self._prices = tuple(ranks), where, prices
        self._numbers = [0] * len(self.ranks)
        self._meetings, self._posts = {}, {}  # works by number and place; works by target, tag and side
        self._mismatches = {}  # what was said of what did not fit, by a collective's number or the Work left alone

    def join(self, place, call, owner):
        """Add the call of the rank at `place` of the group; return its Work."""
        self._numbers[place] += 1
        call.rank, call.number, call.exchange = self.ranks[place], self._numbers[place], self
        try:
            return self._add(place, call, owner)
        except MismatchError as error:
            self._mismatches.setdefault(call.number, str(error))
            raise

    def _add(self, place, call, owner):
        works = self._meetings.setdefault(call.number, {})
        if works:
            _compare(call, next(iter(works.values())).call)
        call.ready = owner.depart(call)
        work = works[place] = Work(call, owner)
        if len(works) == len(self.ranks):
            self._carry_out([works[i] for i in range(len(self.ranks))])
            del self._meetings[call.number]
        return work

    def _carry_out(self, works):
        calls = [work.call for work in works]
        _act(calls)
        end = self._prices.collective(calls, [work.owner for work in works])
        for work in works:
            work.finish(end)

    def post(self, place, call, owner, source, target, tag):
        """Add a message's sending or receiving side, between two places of the group; return its Work.

        source: None receives from whoever sends first.
        """
        call.rank, call.exchange = self.ranks[place], self
        call.ready = owner.depart(call)
        work = Work(call, owner)
        posts = self._posts.setdefault((target, tag), (deque(), deque()))  # those that send, those that receive
        mine, others = posts if place == source and call.sent else posts[::-1]
        work.ends = (source, target)
        other = next((o for o in others if _meet(o.ends[0], source)), None)
        if other is None:
            mine.append(work)
        else:
            others.remove(other)
            try:
                self._deliver(*((work, other) if call.sent else (other, work)))
            except MismatchError as error:
                self._mismatches[other] = str(error)
                raise
        return work

    def _deliver(self, sending, receiving):
        _compare(receiving.call, sending.call)
        receiving.call.source = sending.ends[0]
        _act([sending.call, receiving.call])
        end = self._prices.message(sending.call, receiving.call, sending.owner, receiving.owner)
        sending.finish(end)
        receiving.finish(end)

    def missing(self, work):
        """Return the ranks that `work` still waits for, none where any would do."""
        if not work.call.number:
            return [self.ranks[end] for end in work.ends if end is not None and self.ranks[end] != work.rank]
        called = self._meetings[work.call.number]
        return [rank for place, rank in enumerate(self.ranks) if place not in called]

    def mismatch(self, work):
        """Return what was said of what `work` is part of, where it did not fit and the program went on, or None."""
        return self._mismatches.get(work.call.number or work)

    def open(self):
        """Return the works that nobody has completed."""
        works = [work for called in self._meetings.values() for work in called.values()]
        return works + [work for posts in self._posts.values() for side in posts for work in side]


def _meet(one, other):
    return one is None or other is None or one == other


@torch.no_grad()
def _act(calls):
    calls[-1].act(calls)


def _compare(call, first):
    """Raise MismatchError unless two ranks' calls fit together."""
    if call.number and call.name != first.name:
        raise MismatchError(
            f"call #{call.number} of {call.where}: rank {call.rank} calls {call.name}, "
            f"rank {first.rank} called {first.name}"
        )
    for word, value in call.same.items():
        if value != first.same.get(word):
            raise MismatchError(
                f"{call}: rank {call.rank} has {word} {value}, rank {first.rank} has {first.same.get(word)}"
            )
