"""A rank's part of a schedule on a network that is as unkind as gloo may be: late senders, early receivers, no luck.

Ranks are threads here. A message is copied either at once when both sides are ready, or only when one of them waits:
whoever overwrites what has not left yet, or asks for what it may not take yet, gets a wrong sum, every time.
"""

import itertools
import threading
import time
from types import SimpleNamespace

import distributed_ranks as ranks
import pytest
import torch

from d2lmini.collectives import on_devices
from d2lmini.distributed import messages
from d2lmini.distributed.plan import plan
from d2lmini.distributed.program import program


class Network:
    """Messages between threads. copies: "early", when both sides have asked; "late", when one of them waits.

    slow: the rank that comes late with everything.
    """

    def __init__(self, copies, slow):
        self.copies, self.slow, self.changed, self.messages = copies, slow, threading.Condition(), {}

    def ask(self, key, side, tensor):
        """Put one side's tensor down; return what waits for the message."""
        if (key[0] if side == "from" else key[1]) == self.slow:
            time.sleep(1e-3)
        with self.changed:
            message = self.messages.setdefault(key, {})
            assert side not in message, f"{key} was used before"
            message[side] = tensor
            if self.copies == "early":
                self._copy(message)
            self.changed.notify_all()
        return SimpleNamespace(wait=lambda limit: self._wait(message))

    def _wait(self, message):
        with self.changed:
            met = self.changed.wait_for(lambda: "from" in message and "to" in message, timeout=20)
            assert met, "the ranks wait in a circle"
            self._copy(message)

    def _copy(self, message):
        if "from" in message and "to" in message and "copied" not in message:
            message["to"].copy_(message["from"])
            message["copied"] = True


class Call:
    """Stands for `agreement.Call`: the number is the tag."""

    def tag(self, number):
        return number


def execute(schedule, tensors, sizes, network, monkeypatch):
    """Run every rank's plan in a thread of its own. sizes: the longest segment, what is short, and the scratch."""
    here = threading.local()

    def isend(tensor, peer, tag):
        return network.ask((here.rank, peer, tag), "from", tensor)

    def irecv(tensor, peer, tag):
        return network.ask((peer, here.rank, tag), "to", tensor)

    def rank(number):
        here.rank = number
        todo = plan(schedule, number, len(tensors[number]), *sizes)
        scratch = torch.empty(8 * len(tensors[number]))  # each thread its own
        rooms = [scratch[first:last] for first, last in todo.rooms]
        try:
            messages.perform(todo, tensors[number], rooms, torch.add, Call(), 30)
        except BaseException as error:
            failures.append(error)

    monkeypatch.setattr(messages, "dist", SimpleNamespace(isend=isend, irecv=irecv))
    failures, threads = [], [threading.Thread(target=rank, args=(number,)) for number in range(len(tensors))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures, failures


@pytest.mark.parametrize("copies", ["early", "late"])
@pytest.mark.parametrize("size", [2, 3, 4, 6])
def test_no_order_of_events_gives_another_sum_or_stops(size, copies, monkeypatch):
    torch.manual_seed(size)
    for schedule in ranks.every_schedule(size):
        tensors = [torch.randn(23) for _ in range(size)]
        wanted = [tensor.clone() for tensor in tensors]
        on_devices.run(schedule, wanted)
        for slow, sizes in itertools.product(range(min(size, 3)), ((2, 0, 4), (23, 0, 99), (3, 23, 99))):
            mine = [tensor.clone() for tensor in tensors]
            execute(schedule, mine, sizes, Network(copies, slow), monkeypatch)
            for rank, tensor in enumerate(wanted):
                assert torch.equal(mine[rank], tensor), f"{schedule.name}, rank {rank}, sizes {sizes}"


def test_a_rank_moves_what_the_ring_must_and_no_more():
    for size, n in ((2, 10), (3, 10), (5, 12)):
        for rank in range(size):
            part = program(ranks.schedules.allreduce_ring(size), rank, n, 4)
            received = sum(move.last - move.first for move in part.receives)
            assert abs(received - 2 * (size - 1) * n / size) < 2  # a remainder goes to the first chunks
            assert all(0 < move.last - move.first <= 4 for move in part.sends + part.receives)


def test_the_plan_of_a_short_ring_is_as_described():
    todo = plan(ranks.schedules.allreduce_ring(2), 0, 10, 10, 10, 99)
    names = [*map(str, todo.places), "room 0", "room 1"]
    said = [(order.what, order.move.op if order.what == "take" else order.move.step) for order in todo.orders]
    assert said == [("ask", 0), ("ask", 1), ("send", 0), ("wait", 0), ("take", "reduce"), ("send", 1),
                    ("wait", 1), ("wait", 0), ("take", "copy"), ("wait", 1)]  # fmt: skip
    moved = [names[order.here] for order in todo.orders if order.what != "wait"]
    assert moved == ["room 0", "room 1", "(5, 10)", "(0, 5)", "(0, 5)", "(5, 10)"]
    assert [names[order.landed] for order in todo.orders if order.what == "take"] == ["room 0", "room 1"]


@pytest.mark.parametrize(("n", "segment"), [(5, 1), (100, 3), (100, 8), (1000, 80)])
def test_rooms_stay_within_the_scratch(n, segment):
    for schedule in ranks.every_schedule(4):
        todo = plan(schedule, 1, n, segment, 2, 16)
        assert all(last <= 16 for first, last in todo.rooms), schedule.name
        for i, move in enumerate(todo.part.receives):
            assert todo.rooms[i][1] - todo.rooms[i][0] == (move.last - move.first) * move.buffered
