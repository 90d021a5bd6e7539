"""Schedules: what they deliver, their steps and bytes against the formulas, and a verifier that rejects mutants."""

import math
from collections import Counter

import pytest

from d2lmini.collectives import schedules
from d2lmini.collectives.schedules import Schedule, Send, check, messages

COUNTS = (*range(1, 10), 12, 16, 17, 33, 64)
ROOTED = {
    "broadcast": schedules.broadcast,
    "reduce": schedules.reduce,
    "scatter": schedules.scatter,
    "gather": schedules.gather,
}
each_count = pytest.mark.parametrize("world_size", COUNTS)
each_allreduce = pytest.mark.parametrize("name", schedules.ALLREDUCE)


def sent(schedule, n):
    """Return the elements that each rank sends of a buffer of n elements."""
    total = Counter()
    for _, send, first, last in messages(schedule, n):
        total[send.src] += last - first
    return [total[rank] for rank in range(schedule.world_size)]


# -- what they deliver -----------------------------------------------------------------------------------------------


@each_count
@each_allreduce
def test_allreduce_counts_every_rank_once(name, world_size):
    schedule = schedules.ALLREDUCE[name](world_size)
    assert (schedule.name, schedule.world_size) == (name, world_size)
    check(schedule, "all-reduce")


@each_count
@pytest.mark.parametrize("collective", ROOTED)
def test_from_or_to_every_root(collective, world_size):
    for root in {0, 1 % world_size, world_size // 2, world_size - 1}:
        schedule = ROOTED[collective](world_size, root)
        check(schedule, collective, root)
        assert len(schedule.steps) == math.ceil(math.log2(world_size))


@each_count
def test_around_the_ring(world_size):
    for order in (None, range(world_size - 1, -1, -1), [*range(0, world_size, 2), *range(1, world_size, 2)]):
        check(schedules.reduce_scatter(world_size, order), "reduce-scatter")
        check(schedules.all_gather(world_size, order), "all-gather")
        check(schedules.allreduce_ring(world_size, order), "all-reduce")


def test_a_ring_follows_its_order():
    pairs = {(s.src, s.dst) for step in schedules.allreduce_ring(4, [0, 2, 3, 1]).steps for s in step}
    assert pairs == {(0, 2), (2, 3), (3, 1), (1, 0)}


# -- steps and bytes -------------------------------------------------------------------------------------------------


@each_count
def test_ring_formulas(world_size):
    schedule = schedules.allreduce_ring(world_size)
    assert len(schedule.steps) == 2 * (world_size - 1)
    for n in (0, 1, world_size - 1, world_size, 7 * world_size + world_size // 2):
        sizes = [n // world_size + (rank < n % world_size) for rank in range(world_size)]
        exact = [2 * n - sizes[rank] - sizes[(rank + 1) % world_size] for rank in range(world_size)]
        assert sent(schedule, n) == (exact if world_size > 1 else [0])
        assert sum(exact) == 2 * (world_size - 1) * n  # on average 2 (P − 1) / P · n a rank
        if n % world_size == 0:
            assert sent(schedule, n) == [2 * (world_size - 1) * n // world_size] * world_size


@each_count
def test_formulas_of_naive_tree_and_halving_doubling(world_size):
    n, others, levels = 3 * 64, world_size - 1, math.floor(math.log2(world_size))
    core = 2**levels
    extra = world_size - core
    naive, tree, halving = (schedules.ALLREDUCE[name](world_size) for name in ("naive", "tree", "halving-doubling"))
    assert [len(s.steps) for s in (naive, tree)] == [2 * others, 2 * math.ceil(math.log2(world_size))]
    assert len(halving.steps) == 2 * levels + 2 * (extra > 0)
    assert sent(naive, n) == [n * others] + [n] * others
    assert sum(sent(tree, n)) == 2 * others * n
    assert sent(tree, n)[0] == math.ceil(math.log2(world_size)) * n  # the root sends to one child in each level
    alone = 2 * (core - 1) * n // core
    assert sent(halving, n) == [alone + n * (rank < extra) for rank in range(core)] + [n] * extra


@each_count
def test_hierarchies_of_every_shape(world_size):
    n = 2 * world_size
    for local in (k for k in range(1, world_size + 1) if world_size % k == 0):
        schedule, nodes = schedules.allreduce_hierarchical(world_size, local), world_size // local
        check(schedule, "all-reduce")
        assert len(schedule.steps) == 2 * (local - 1) + 2 * (nodes - 1)
        assert sent(schedule, n) == [2 * (world_size - 1) * n // world_size] * world_size
        across = Counter()
        for _, send, first, last in messages(schedule, n):
            if send.src // local != send.dst // local:
                across[send.src] += last - first
        assert [across[rank] for rank in range(world_size)] == [2 * (nodes - 1) * (n // local) // nodes] * world_size


@each_count
def test_a_rank_takes_part_in_one_message_each_way_a_step(world_size):
    """So that a port that carries one message in each direction at a time delays nobody."""
    for make in (schedules.allreduce_tree, schedules.allreduce_ring, schedules.allreduce_halving_doubling):
        for step in make(world_size).steps:
            assert len({s.src for s in step}) == len({s.dst for s in step}) == len(step)


# -- chunks ----------------------------------------------------------------------------------------------------------


def test_schedules_of_one_name_have_other_marks_unless_they_are_equal():
    for make in (schedules.broadcast, schedules.gather, schedules.reduce, schedules.scatter):
        made = [make(5, root) for root in range(5)]
        assert len({schedule.mark for schedule in made}) == 5
        assert make(5, 3) == made[3]
        assert hash(make(5, 3)) == hash(made[3])


def test_empty_chunks_are_not_sent():
    assert list(messages(schedules.allreduce_ring(4), 0)) == []
    assert {(first, last) for _, _, first, last in messages(schedules.allreduce_ring(4), 2)} == {(0, 1), (1, 2)}


# -- errors ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (lambda: schedules.allreduce_ring(0), "got 0"),
        (lambda: schedules.broadcast(4, 4), "0 to 3, got 4"),
        (lambda: schedules.scatter(4, -1), "got -1"),
        (lambda: schedules.allreduce_ring(3, [0, 1, 1]), "once"),
        (lambda: schedules.allreduce_hierarchical(6, 4), "nodes of 4"),
        (lambda: schedules.named("star", 2), "star"),
        (lambda: schedules.allreduce_hierarchical(6, -2), "nodes of -2"),
        (lambda: check(schedules.allreduce_ring(2), "allreduce"), "unknown collective"),
        (lambda: check(schedules.reduce(3), "all-reduce"), "rank 1's chunk 0"),
        (lambda: check(Schedule("odd", 2, 1, ((Send(0, 1, 0, 1, "sum"),),)), "all-reduce"), "'reduce' or 'copy'"),
    ],
)
def test_errors_say_what_was_expected(call, says):
    with pytest.raises(ValueError, match=says):
        call()


# -- mutants ---------------------------------------------------------------------------------------------------------


def replaced(schedule, step, sends):
    """Return the schedule with other sends in one step."""
    steps = [*schedule.steps[:step], tuple(sends), *schedule.steps[step + 1 :]]
    return Schedule(schedule.name, schedule.world_size, schedule.chunks, tuple(steps))


def mutants(schedule):
    """Yield (what was done, mutant) for one fault at every place of a schedule."""
    size, chunks = schedule.world_size, schedule.chunks
    for t, step in enumerate(schedule.steps):
        for i, send in enumerate(step):
            others, at = [*step[:i], *step[i + 1 :]], f"step {t}, send {i}: "
            following = (send.start + 1) % chunks
            changes = [
                {"op": {"copy": "reduce", "reduce": "copy"}[send.op]},
                {"dst": send.src},
                {"dst": size},
                {"stop": chunks + 1},
                {"src": send.dst, "dst": send.src},
            ]
            if chunks > 1 and (send.start, send.stop) != (0, chunks):
                changes.append({"start": following, "stop": following + 1})
            for change in changes:
                yield at + str(change), replaced(schedule, t, [*others, send._replace(**change)])
            yield at + "dropped", replaced(schedule, t, others)
            yield at + "sent twice at once", replaced(schedule, t, [*step, send])
            again = [*schedule.steps[: t + 1], (send,), *schedule.steps[t + 1 :]]
            yield at + "sent once more", Schedule(schedule.name, size, chunks, tuple(again))


def passes(schedule, collective):
    """Return whether the verifier accepts a schedule."""
    try:
        check(schedule, collective)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("world_size", [2, 3, 4, 7])  # with and without ranks beside a power of two
@each_allreduce
def test_check_rejects_every_mutant(name, world_size):
    accepted = [what for what, mutant in mutants(schedules.ALLREDUCE[name](world_size)) if passes(mutant, "all-reduce")]
    assert accepted == []


def test_messages_of_a_step_carry_what_was_there_before_it():
    exchange = (Send(0, 1, 0, 1, "reduce"), Send(1, 0, 0, 1, "reduce"))
    check(Schedule("exchange", 2, 1, (exchange,)), "all-reduce")
    relay = (Send(0, 1, 0, 1, "copy"), Send(1, 2, 0, 1, "copy"))
    with pytest.raises(ValueError, match="rank 2's chunk 0 must hold rank 0, it holds rank 1"):
        check(Schedule("relay", 3, 1, (relay,)), "broadcast")


@pytest.mark.parametrize("world_size", [1, 2, 3, 4, 7, 8, 13])
def test_an_allreduce_by_a_tree_is_the_trees_reduce_and_broadcast(world_size):
    up, down = schedules.reduce(world_size), schedules.broadcast(world_size)
    assert schedules.allreduce_tree(world_size).steps == up.steps + down.steps
