"""Around a ring, each rank sending to the next one: reduce-scatter and all-gather.

    step 0   0 ─chunk 2─► 1    1 ─chunk 0─► 2    2 ─chunk 1─► 0        after P − 1 steps of adding, rank r holds the
    step 1   0 ─chunk 1─► 1    1 ─chunk 2─► 2    2 ─chunk 0─► 0        whole sum of chunk r

Source: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms for clusters of workstations", 2009.
"""

from collections.abc import Iterable

from d2lmini.collectives.schedules.schedule import Schedule, Send, need


def reduce_scatter(world_size, order=None):
    """Rank r gets chunk r of the sum of all buffers: P - 1 steps.

    order: the ranks as they sit around the ring; 0, 1, 2, … if None.
    """
    ring, steps = ring_order(world_size, order), []
    for t in range(world_size - 1):
        sends = []
        for i, rank in enumerate(ring):
            chunk = ring[(i - 1 - t) % world_size]
            neighbour = ring[(i + 1) % world_size]
            sends.append(Send(rank, neighbour, chunk, chunk + 1, "reduce"))
        steps.append(tuple(sends))
    return Schedule("reduce-scatter", world_size, world_size, tuple(steps))


def all_gather(world_size, order=None):
    """Every rank gets chunk r of rank r, for every r: P - 1 steps.

    order: the ranks as they sit around the ring; 0, 1, 2, … if None.
    """
    ring, steps = ring_order(world_size, order), []
    for t in range(world_size - 1):
        sends = []
        for i, rank in enumerate(ring):
            chunk = ring[(i - t) % world_size]
            neighbour = ring[(i + 1) % world_size]
            sends.append(Send(rank, neighbour, chunk, chunk + 1, "copy"))
        steps.append(tuple(sends))
    return Schedule("all-gather", world_size, world_size, tuple(steps))


def ring_order(world_size: int, order: Iterable[int] | None = None) -> list[int]:
    """Return the ranks as they sit around the ring: `order`, which must hold each once, or 0, 1, 2, … if None."""
    need(world_size)
    ring = list(range(world_size)) if order is None else list(order)
    if sorted(ring) != list(range(world_size)):
        raise ValueError(f"a ring needs each of the ranks 0 to {world_size - 1} once, got {ring}")
    return ring
