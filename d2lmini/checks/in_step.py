"""Checks of the labs on ranks that get out of step: one that hangs, and two whose replicas drift apart."""

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F

from d2lmini.checks.diagnosis import diagnosed
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, brief, called, check, many, need_gpus, number, typed
from d2lmini.checks.traced import run_on_ranks

RATE = 0.1
NAN, INF, LARGE = torch.nan, torch.inf, 3e38  # of targets; the square of the last is infinite, and so is its gradient
# Each rank's scale of its losses, batches that are broken as {(rank, batch): target}, and the limit of the mean loss.
CASES = (
    ((1.0, 0.5), {}, 0.3),
    ((1.0, 0.5), {(1, 2): NAN}, 0.0),
    ((0.4, 1.0, 0.7), {(0, 1): INF, (2, 1): NAN, (1, 4): LARGE}, 0.2),
    ((1.0, 0.5), {(1, 3): INF}, 0.0),
    ((1.0, 0.2), {(0, 0): NAN}, 1e9),
    ((1.0,), {(0, 3): LARGE}, 0.3),
)
BATCHES = 12
ACCUMULATED = ((4, 7, 2), (3, 5, 3), (2, 4, 2), (1, 5, 4), (2, 2, 3))  # ranks, batches of each, batches for an update
ADDED = ((4, 1000), (3, 100), (2, 7), (1, 3), (6, 31))  # ranks, numbers; of up to 4 tensors torch.sum adds in order


@check
def fit_together(function):
    """``function(net, batches, limit)``, on each rank: train until the mean loss is low; return the updates."""
    for scales, broken, limit in CASES:
        lost = "".join(f", batch {i} of rank {rank} has targets of {y:g}" for (rank, i), y in broken.items())
        given = f"{many(len(scales), 'rank')}, limit {limit:g}{lost}"
        batches = [
            [_batch(scale, i, broken.get((rank, i))) for i in range(BATCHES)] for rank, scale in enumerate(scales)
        ]
        updates, want = _alone(batches, limit)
        found, _ = run_on_ranks(_fit, len(scales), given, function, batches, limit)
        for rank, (told, parameters) in enumerate(found):
            if number(told) != updates:
                raise Wrong(f"{given}: rank {rank} should return {many(updates, 'update')}, it returned {typed(told)}")
            _must_have(want, parameters, f"{given}: after {many(updates, 'update')} rank {rank}")
    return "all ranks skip the same batches and stop at the same one, with the parameters of one process"


def _must_have(want, got, who):
    if not _near(got, want):
        raise Wrong(f"{who} should have the parameters {brief(want)}, it has {brief(got)}")


def _near(got, want):
    return torch.allclose(got, want, rtol=1e-4, atol=1e-5)


def _batch(scale, number, broken=None):
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(int(100 * scale) + number)) * scale
    y = X @ torch.tensor([[1.5], [-0.5]]) + 0.3 * scale
    return (X, y if broken is None else torch.full_like(y, broken))


def _net():
    torch.manual_seed(0)
    return nn.Linear(2, 1)


def _alone(batches, limit):
    """Return what one process does with all ranks' batches: its updates and its parameters."""
    net, updates = _net(), 0
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for together in zip(*batches):
        loss = torch.stack([F.mse_loss(net(X), y) for X, y in together]).mean()
        if not loss.isfinite():
            continue
        if loss < limit:
            break
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
    return updates, _flat(net)


def _flat(net):
    return torch.cat([p.detach().cpu().flatten() for p in net.parameters()])


def _fit(rank, function, batches, limit):
    net = _net().to("sim")
    return function(net, [(X.to("sim"), y.to("sim")) for X, y in batches[rank]], limit), _flat(net)


@check
def left_over(function, **said):
    """``function(net, batches, every)``, on each rank: an update from so many batches, the last from fewer."""
    return diagnosed("left_over", said, lambda: _try_updates(function))


def _try_updates(function):
    for ranks, count, every in ACCUMULATED:
        given = f"{many(ranks, 'rank')} with {many(count, 'batch', 'es')} each, {every} for an update"
        batches = [[_batch(1 / (rank + 1), i) for i in range(count)] for rank in range(ranks)]
        want = _accumulated(batches, every)
        found, messages = run_on_ranks(_fit_in_place, ranks, given, function, batches, every)
        for rank, got in enumerate(found):
            if not _near(got, found[0]):
                both = f"rank 0 has the parameters {brief(found[0])}, rank {rank} has {brief(got)}"
                raise Wrong(f"{given}: the replicas differ in the end: {both}")
        if not _near(found[0], want):
            raise Wrong(f"{given}: the replicas are equal, but {_wrong_update(function, batches, every, found[0])}")
        updates, ring = -(-count // every), 2 * (ranks - 1) / ranks * want.nbytes  # bytes that a rank sends in a ring
        sent = sum(s.nbytes for s in messages if s.place == "gpu0" and s.name.startswith(("all_reduce", "send")))
        if sent > 1.25 * updates * ring:
            often = f"the gradients are sent {sent / ring:g} times; {many(updates, 'update')} need {updates}"
            raise Wrong(f"{given}: the replicas are right, but {often}")
    return "all replicas take the steps of one process, and gradients travel once for each update"


def _wrong_update(function, batches, every, got):
    """Say which update is wrong, that of the batches left over or an earlier one, and how the parameters should move.

    Args:
        function: The reader's.
        batches: For each rank its batches.
        every: Batches for an update.
        got: The reader's parameters in the end.
    """
    left = len(batches[0]) % every
    full = [mine[: len(mine) - left] for mine in batches]
    before, want = _accumulated(full, every), _accumulated(batches, every)
    start = run_on_ranks(_fit_in_place, len(full), "", function, full, every)[0][0] if full[0] and left else before
    if not left or not _near(start, before):
        count = many(len(full[0]) // every, "update")
        return f"after {count} of {many(every, 'batch', 'es')} they should be {brief(before)}, they are {brief(start)}"
    last = f"the last update, of the {many(left, 'batch', 'es')} left over,"
    if _near(got, before):
        return f"{last} is missing"
    moves = f"it should move the parameters by {brief(want - before)}, it moves them by {brief(got - before)}"
    slip = _near(got - before, (want - before) * left / every)
    hint = f" (divide by the {many(left, 'batch', 'es')} that it has, not by {every})" * slip
    return f"{last} is wrong: {moves}{hint}"


def _accumulated(batches, every):
    """Return the parameters of one process that has the batches of all ranks."""
    net, together = _net(), list(zip(*batches))
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    for start in range(0, len(together), every):
        parts = [part for batch in together[start : start + every] for part in batch]
        optimizer.zero_grad()
        torch.stack([F.mse_loss(net(X), y) for X, y in parts]).mean().backward()
        optimizer.step()
    return _flat(net)


def _fit_in_place(rank, function, batches, every):
    net = _net().to("sim")
    called(function, net, [(X.to("sim"), y.to("sim")) for X, y in batches[rank]], every)
    return _flat(net)


@check
def one_order(function, **said):
    """``function(tensor)``, on each rank: the sum of all ranks' tensors, added in the order of the ranks."""
    need_gpus(max(ranks for ranks, _ in ADDED))
    return diagnosed("one_order", said, lambda: _try_order(function))


def _try_order(function):
    for ranks, n in ADDED:
        given = f"{many(n, 'number')} on {many(ranks, 'rank')}"
        numbers = torch.Generator().manual_seed(n)
        data = list(torch.randn(ranks, n, generator=numbers))
        found, messages = run_on_ranks(_added, ranks, given, function, data)
        for rank, got in enumerate(found):
            if off := first_off("the sum", sum(data), got, rtol=1e-3, atol=1e-5):
                raise Wrong(f"{given}: on rank {rank} {off}")
            _must_be_bits(found[0], got, f"{given}: ranks 0 and {rank} differ", "; their replicas would drift apart")
        what = f"{given}: all ranks agree, but they differ from ((0 + 1) + 2) + …"
        _must_be_bits(sum(data), found[0], what, ": add one tensor after another, in the order of the ranks")
        adds = next((s.name.split()[0] for s in messages if s.name.startswith(("all_reduce", "reduce"))), None)
        if adds:
            raise Wrong(f"{given}: your code calls {adds}, and NCCL does not say in which order it adds; add yourself")
    return "all ranks have the same bits, those of one process that adds in the order of the ranks"


def _must_be_bits(want, got, what, so=""):
    odd = int((want != got).sum())
    if odd:
        raise Wrong(f"{what} in {many(odd, 'number')}, by {(want - got).abs().max():.1e} at most{so}")


def _added(rank, function, data):
    dist.init_process_group("nccl")
    tensor = data[rank].to("sim")
    total = called(function, tensor)
    if not isinstance(total, torch.Tensor):
        raise TypeError(f"expected the sum, a tensor, got {typed(total)}")
    return total.cpu()
