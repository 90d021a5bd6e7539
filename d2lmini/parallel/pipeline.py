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
    order = [(kind, i) for kind in "FB" for i in range(batches)]
    return [list(order) for _ in range(stages)]


def one_f_one_b(stages, batches):
    """Return each stage's order: one forward, one backward, in turn.

    Stage s of p starts with p − s forwards: as many keep it busy.
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
    """Return {(stage, kind, micro-batch): when it starts}, messages taking no time.

    Args:
        forward, backward: What a micro-batch takes in one stage.

    Raises:
        ValueError: For a schedule whose stages wait for one another, and names the first step that never starts.

    >>> parallel.starts(parallel.gpipe(2, 1))
    {(0, 'F', 0): 0.0, (1, 'F', 0): 1.0, (1, 'B', 0): 2.0, (0, 'B', 0): 4.0}
    """
    ranks = [[(stage, *step) for step in order] for stage, order in enumerate(orders)]
    return start_times(ranks, {"F": forward, "B": backward})


def start_times(ranks, seconds):
    """Return {(stage, kind, micro-batch): when it starts}, messages taking no time.

    Args:
        ranks: For each rank its steps in order: (stage, kind, micro-batch). A rank may have several stages.
        seconds: {kind: what a step takes}. The kinds are F, forward; B, backward; or, in place of B, I and W, its
            halves: the gradient of the stage's input, for which the stage before waits, and those of its weights.

    Raises:
        ValueError: Ranks wait for one another; the line names the first step that never starts.
    """
    begin, end, free, todo = {}, {}, [0.0] * len(ranks), [list(order) for order in ranks]
    last = max(stage for order in ranks for stage, _, _ in order)
    while any(todo):
        stuck = True
        for rank, order in enumerate(todo):
            needed = _needed(order[0], last) if order else []
            if not order or (needed and not any(step in end for step in needed)):
                continue
            step, stuck = order.pop(0), False
            begin[step] = max(free[rank], *(end.get(other, 0.0) for other in needed), 0.0)
            free[rank] = end[step] = begin[step] + seconds[step[1]]
        if stuck:
            stage, kind, i = next(order[0] for order in todo if order)
            raise ValueError(f"the schedule does not end: stage {stage} waits for {kind}{i}")
    return begin


def _needed(step, last):
    """Return the steps of which one must have ended before a step starts; none for the first stage's forward."""
    stage, kind, i = step
    if kind == "F":
        return [(stage - 1, "F", i)] if stage else []
    if kind == "W":
        return [(stage, "I", i)]
    return [(stage, "F", i)] if stage == last else [(stage + 1, "B", i), (stage + 1, "I", i)]


def bubble(orders, forward=1.0, backward=2.0):
    """Return the share of the time from first to last step in which a stage is idle, on average.

    With m micro-batches on p stages GPipe and 1F1B both have (p − 1) ÷ (m + p − 1).
    """
    begin, cost = starts(orders, forward, backward), {"F": forward, "B": backward}
    busy = sum(cost[kind] for order in orders for kind, _ in order) / len(orders)
    return 1 - busy / max(at + cost[kind] for (_, kind, _), at in begin.items())


def run_stage(stage, order, batches, loss, like):
    """Run a step of this rank's stage; return the last stage's losses.

    order: the schedule's, for this rank. batches: the first stage's inputs,
    one for each micro-batch. loss(output, i): the last stage's. like: a
    tensor of the shape that is sent. Gradients accumulate in parameters.
    """
    rank, last = dist.get_rank(), dist.get_world_size() - 1
    kept, losses = {}, []
    leaving = None, -1  # nothing to send yet
    for kind, i in order:
        # send the last step's result, receive this step's input
        source = rank - 1 if kind == "F" else rank + 1
        came = exchange(*leaving, source, like)
        if kind == "F":
            x = came.requires_grad_() if rank else batches[i]
            y = stage(x)
            if rank == last:  # its result is the loss, and stays here
                y = loss(y, i)
                losses.append(y.detach())
            kept[i] = x, y  # until the backward of i
            leaving = y.detach(), rank + 1
        else:
            x, y = kept.pop(i)
            y.backward(came)  # the gradient of y; None for a loss
            leaving = x.grad, rank - 1
    exchange(*leaving, -1, like)  # send the last result
    return losses


def exchange(tensor, to, source, like):
    """Send a tensor to a rank and return one from another, as one batch.

    Where there is no such rank nothing is sent, or None is returned.
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
