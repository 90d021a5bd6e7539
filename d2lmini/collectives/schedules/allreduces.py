"""All-reduce: every rank gets all buffers combined. Five ways, from the plainest to the one for clusters.

Source of halving and doubling: Rabenseifner, "Optimization of collective reduction operations", 2004.
"""

from functools import lru_cache

from d2lmini.collectives.schedules.rings import all_gather, reduce_scatter
from d2lmini.collectives.schedules.schedule import Schedule, Send, need


def allreduce_naive(world_size):
    """Every rank sends its buffer to rank 0, which sends the sum to all.

    One message in each step: 2(P - 1) steps of n elements.
    """
    others = range(1, world_size)
    steps = [(Send(rank, 0, 0, 1, "reduce"),) for rank in others]
    steps += [(Send(0, rank, 0, 1, "copy"),) for rank in others]
    return Schedule("naive", world_size, 1, tuple(steps))


def allreduce_tree(world_size):
    """Reduce up a binomial tree, broadcast down: 2⌈log₂ P⌉ steps."""
    up, distance = [], 1
    while distance < world_size:  # the rank at this distance sends
        senders = range(distance, world_size, 2 * distance)
        up.append([Send(r, r - distance, 0, 1, "reduce") for r in senders])
        distance *= 2
    down = [[Send(s.dst, s.src, 0, 1, "copy") for s in step] for step in up]
    steps = tuple(map(tuple, up + down[::-1]))
    return Schedule("tree", world_size, 1, steps)


def allreduce_ring(world_size, order=None):
    """Reduce-scatter, then all-gather: 2(P - 1) steps of n/P elements."""
    first = reduce_scatter(world_size, order)
    second = all_gather(world_size, order)
    steps = first.steps + second.steps
    return Schedule("ring", world_size, world_size, steps)


def allreduce_halving_doubling(world_size):
    """Exchange halves, then quarters, …; then the same steps backward.

    2 log₂ P steps, 2(P - 1)/P · n elements sent by a rank. Where P is no
    power of two, ranks past the last power of two hand their buffers to
    a partner first and get the result last: 2 more steps.
    """
    need(world_size)
    core = 1 << world_size.bit_length() - 1
    extra = range(core, world_size)
    parts, halving, doubling = [(0, core)] * core, [], []
    for bit in range(core.bit_length() - 1):
        halves = [_keep_and_give(*part, upper=rank >> bit & 1) for rank, part in enumerate(parts)]
        parts = [keep for keep, _ in halves]
        away = [Send(rank, rank ^ 1 << bit, *give, "reduce") for rank, (_, give) in enumerate(halves)]
        back = [Send(rank, rank ^ 1 << bit, *keep, "copy") for rank, (keep, _) in enumerate(halves)]
        halving.append(tuple(away))
        doubling.insert(0, tuple(back))
    fold = tuple(Send(r, r - core, 0, core, "reduce") for r in extra)
    unfold = tuple(Send(r - core, r, 0, core, "copy") for r in extra)
    steps = [step for step in (fold, *halving, *doubling, unfold) if step]
    return Schedule("halving-doubling", world_size, core, tuple(steps))


def _keep_and_give(start, stop, upper):
    """Return which half of the chunks a rank keeps and which it gives to its partner."""
    middle = (start + stop) // 2
    halves = (start, middle), (middle, stop)
    return (halves[1], halves[0]) if upper else halves


def allreduce_hierarchical(world_size, per_node=None):
    """Reduce-scatter inside each node, ring all-reduce across, all-gather.

    Node k holds ranks k·L to (k + 1)·L - 1 where L = `per_node`, by default
    the largest divisor of P up to 8. On N nodes: 2(L - 1) + 2(N - 1) steps;
    a rank sends only 2(N - 1)/N · n/L elements to other nodes.
    """
    need(world_size)
    local = per_node or max(k for k in range(1, 9) if world_size % k == 0)
    nodes, rest = divmod(world_size, local)
    if rest or local < 1:
        raise ValueError(f"{world_size} ranks do not fill nodes of {local}")
    inside = [range(k * local, (k + 1) * local) for k in range(nodes)]
    across = [range(i, world_size, local) for i in range(local)]
    steps = _together(reduce_scatter(local), inside, [0] * nodes, nodes)
    cross = allreduce_ring(nodes)
    steps += _together(cross, across, range(0, world_size, nodes), 1)
    steps += _together(all_gather(local), inside, [0] * nodes, nodes)
    return Schedule("hierarchical", world_size, world_size, steps)


def _together(schedule, groups, firsts, width):
    """Return the steps of `schedule` run by all `groups` of ranks at once.

    Chunk c of group g is the `width` chunks from firsts[g] + c · width on.
    """
    return tuple(
        tuple(
            Send(group[s.src], group[s.dst], first + s.start * width, first + s.stop * width, s.op)
            for group, first in zip(groups, firsts)
            for s in step
        )
        for step in schedule.steps
    )


ALLREDUCE = {
    "naive": allreduce_naive,
    "tree": allreduce_tree,
    "ring": allreduce_ring,
    "halving-doubling": allreduce_halving_doubling,
    "hierarchical": allreduce_hierarchical,
}


def named(algorithm: str, world_size: int, **options) -> Schedule:
    """Return the schedule of `ALLREDUCE` with that name.

    Args:
        algorithm: a name in `ALLREDUCE`.
        world_size: the number of ranks.
        options: of the algorithm, such as `order` of a ring or `per_node` of a hierarchy.

    Raises:
        ValueError: for a name that is unknown.
    """
    if algorithm not in ALLREDUCE:
        raise ValueError(f"unknown algorithm {algorithm!r}: choose one of {', '.join(ALLREDUCE)}")
    return ALLREDUCE[algorithm](world_size, **options) if options else _made_once(algorithm, world_size)


@lru_cache(maxsize=64)
def _made_once(algorithm, world_size):
    return ALLREDUCE[algorithm](world_size)
