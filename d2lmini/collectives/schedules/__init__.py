"""Collectives as data: who sends which chunk to whom, step by step. No tensor, no device, no clock.

Every rank has one buffer of n elements, cut into the schedule's `chunks`. A schedule is executed on devices by
`executor`, between processes by `distributed`, priced by `cost_model`, and `check` verifies it.

All sends of one step happen at the same time: each reads what was there before the step. An empty chunk (fewer elements
than chunks) is not sent at all.
"""

from d2lmini.collectives.schedules.allreduces import (
    ALLREDUCE,
    allreduce_halving_doubling,
    allreduce_hierarchical,
    allreduce_naive,
    allreduce_ring,
    allreduce_tree,
    named,
)
from d2lmini.collectives.schedules.rings import all_gather, reduce_scatter, ring_order
from d2lmini.collectives.schedules.schedule import Schedule, Send, messages, offsets
from d2lmini.collectives.schedules.trees import broadcast, gather, reduce, scatter, tree
from d2lmini.collectives.schedules.verify import check, promised, states

__all__ = [
    "ALLREDUCE",
    "Schedule",
    "Send",
    "all_gather",
    "allreduce_halving_doubling",
    "allreduce_hierarchical",
    "allreduce_naive",
    "allreduce_ring",
    "allreduce_tree",
    "broadcast",
    "check",
    "gather",
    "messages",
    "named",
    "offsets",
    "promised",
    "reduce",
    "reduce_scatter",
    "ring_order",
    "scatter",
    "states",
    "tree",
]
