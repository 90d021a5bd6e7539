"""Pipelines: each rank has some of the layers, and a batch goes through them in micro-batches.

    GPipe, 3 stages, 4 micro-batches (Huang et al., 2019)    1F1B (Narayanan et al., PipeDream, 2019)
    F0 F1 F2 F3             B0 B1 B2 B3                      F0 F1 F2       B0 F3 B1    B2    B3
       F0 F1 F2 F3       B0 B1 B2 B3                            F0 F1    B0 F2 B1 F3 B2    B3
          F0 F1 F2 F3 B0 B1 B2 B3                                  F0 B0 F1 B1 F2 B2 F3 B3

A schedule is data: for each stage the order of its steps, pairs of "F" or "B" and a micro-batch's number. Both idle for
as long; but GPipe keeps the activations of all micro-batches, and 1F1B those of at most as many as there are stages.
"""

import torch
import torch.distributed as dist


def gpipe(stages, batches):
    """Return each stage's order: all micro-batches forward, then back."""
    order = [(way, i) for way in "FB" for i in range(batches)]
    return [list(order) for _ in range(stages)]


def one_f_one_b(stages, batches):
    """Return each stage's order: one forward, one backward, in turn.

    A stage first runs ahead, by as many as the first needs to come back.
    """
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage, batches)
        order = [("F", i) for i in range(ahead)]
        for i in range(batches):
            order.append(("B", i))
            if ahead + i < batches:
                order.append(("F", ahead + i))
        orders.append(order)
    return orders


def starts(orders, forward=1.0, backward=2.0):
    """Return {(stage, way, micro-batch): when it starts}, messages taking no time.

    Args:
        forward, backward: What a micro-batch takes in one stage.

    Raises:
        ValueError: For a schedule whose stages wait for one another, and names the first step that never starts.

    >>> parallel.starts(parallel.gpipe(2, 1))
    {(0, 'F', 0): 0.0, (1, 'F', 0): 1.0, (1, 'B', 0): 2.0, (0, 'B', 0): 4.0}
    """
    begin, free, todo = {}, [0.0] * len(orders), [list(order) for order in orders]
    while any(todo):
        ready = [
            stage
            for stage, order in enumerate(todo)
            if order and _before(stage, order[0], len(orders)) in (*begin, None)
        ]
        if not ready:
            stage = next(stage for stage, order in enumerate(todo) if order)
            raise ValueError(f"the schedule does not end: stage {stage} waits for {''.join(map(str, todo[stage][0]))}")
        for stage in ready:
            way, i = todo[stage].pop(0)
            before = _before(stage, (way, i), len(orders))
            took = forward if before and before[1] == "F" else backward
            arrived = begin[before] + took if before else 0.0
            begin[stage, way, i] = max(free[stage], arrived)
            free[stage] = begin[stage, way, i] + (forward if way == "F" else backward)
    return begin


def _before(stage, step, stages):
    """Return the step whose result a step needs, None for the first stage's forward."""
    way, i = step
    if way == "F":
        return (stage - 1, "F", i) if stage else None
    return (stage, "F", i) if stage == stages - 1 else (stage + 1, "B", i)


def bubble(orders, forward=1.0, backward=2.0):
    """Return the share of the time from first to last step in which a stage is idle, on average.

    With m micro-batches on p stages GPipe and 1F1B both have (p − 1) ÷ (m + p − 1).
    """
    begin, cost = starts(orders, forward, backward), {"F": forward, "B": backward}
    busy = sum(cost[way] for order in orders for way, _ in order) / len(orders)
    return 1 - busy / max(at + cost[way] for (_, way, _), at in begin.items())


def run_stage(stage, order, batches, loss, like):
    """Run one step of this rank's stage; return the losses, on the last.

    order: the schedule's, for this rank. batches: the first stage's inputs,
    one for each micro-batch. loss(output, i): the last stage's. like: a
    tensor as one that travels. Gradients add up in the stage's parameters.
    """
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    kept, losses, leaving = {}, [], (None, -1)
    for way, i in order:
        came = exchange(*leaving, rank + (-1 if way == "F" else 1), like)
        if way == "F":
            x = came.requires_grad_() if rank else batches[i]
            y = stage(x)
            if rank == last:
                y = loss(y, i)
                losses.append(y.detach())
            kept[i], leaving = (x, y), (y.detach(), rank + 1)
        else:
            x, y = kept.pop(i)
            y.backward(came)
            leaving = x.grad, rank - 1
    exchange(*leaving, -1, like)
    return losses


def exchange(tensor, to, source, like):
    """Send a tensor to a rank and return one from another, as one batch.

    A number that is no rank's is nobody: None comes from there.
    """
    ranks, came, batch = range(dist.get_world_size()), None, []
    if to in ranks:
        batch.append(dist.P2POp(dist.isend, tensor, to))
    if source in ranks:
        came = torch.empty_like(like)
        batch.append(dist.P2POp(dist.irecv, came, source))
    for work in dist.batch_isend_irecv(batch) if batch else []:
        work.wait()
    return came
