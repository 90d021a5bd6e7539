"""From or to one rank along a binomial tree: broadcast, reduce, scatter and gather.

    8 ranks, from the root down:    0 ─► 4    then  0 ─► 2, 4 ─► 6    then  0 ─► 1, 2 ─► 3, 4 ─► 5, 6 ─► 7

Source: Thakur, Rabenseifner and Gropp, "Optimization of collective communication operations in MPICH", 2005.
"""

from d2lmini.collectives.schedules.schedule import Schedule, Send, need


def tree(world_size: int) -> list[list[tuple[int, int, int]]]:
    """Return a binomial tree's levels: lists of (parent, child, end).

    Below the child hang the ranks child to end - 1, itself included.
    """
    levels, half = [], 1 << (world_size - 1).bit_length() >> 1
    while half:
        parents = range(0, world_size - half, 2 * half)
        levels.append([(p, p + half, min(p + 2 * half, world_size)) for p in parents])
        half //= 2
    return levels


def broadcast(world_size: int, root: int = 0) -> Schedule:
    """Every rank gets the root's buffer: ⌈log₂ P⌉ steps."""
    need(world_size, root)
    steps = [[(p, c, 0, 1) for p, c, _ in level] for level in tree(world_size)]
    return _rooted("broadcast", world_size, 1, root, steps, "copy")


def reduce(world_size: int, root: int = 0) -> Schedule:
    """The root gets all buffers combined: the broadcast's tree from the leaves up. Other ranks keep partial sums."""
    need(world_size, root)
    steps = [[(c, p, 0, 1) for p, c, _ in level] for level in tree(world_size)[::-1]]
    return _rooted("reduce", world_size, 1, root, steps, "reduce")


def scatter(world_size: int, root: int = 0) -> Schedule:
    """Rank r gets chunk r of the root's buffer: a child receives what all below it need. ⌈log₂ P⌉ steps."""
    need(world_size, root)
    steps = [[(p, c, c, end) for p, c, end in level] for level in tree(world_size)]
    return _rooted("scatter", world_size, world_size, root, steps, "copy")


def gather(world_size: int, root: int = 0) -> Schedule:
    """The root gets chunk r from rank r, for every r: the scatter run backward."""
    need(world_size, root)
    steps = [[(c, p, c, end) for p, c, end in level] for level in tree(world_size)[::-1]]
    return _rooted("gather", world_size, world_size, root, steps, "copy")


def _rooted(name, world_size, chunks, root, steps, op):
    """Build the schedule of a tree whose root is called 0; rank v of the tree is rank v + root of the world."""

    def sends(src, dst, start, stop):
        src, dst = (src + root) % world_size, (dst + root) % world_size
        if chunks == 1:
            return [Send(src, dst, 0, 1, op)]
        start, stop = start + root, stop + root  # chunks turn with their ranks: a range may run past the end
        parts = [(max(start - turn, 0), min(stop - turn, chunks)) for turn in (0, chunks)]
        return [Send(src, dst, first, last, op) for first, last in parts if first < last]

    return Schedule(name, world_size, chunks, tuple(tuple(s for move in step for s in sends(*move)) for step in steps))
