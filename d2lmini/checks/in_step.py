"""The check of the lab on a training loop that hangs: ranks must decide alike when to skip a batch and when to stop."""

import torch
from torch import nn
from torch.nn import functional as F

from d2lmini.checks.mechanism import Wrong, brief, check, many, number, typed
from d2lmini.checks.traced import run_on_ranks

RATE, BROKEN = 0.1, float("nan")
# Each rank's scale of its losses, (rank, batch) that are broken, and the limit of the mean loss.
CASES = (
    ((1.0, 0.5), (), 0.3),
    ((1.0, 0.5), ((1, 2),), 0.0),
    ((0.4, 1.0, 0.7), ((0, 1), (2, 1), (1, 4)), 0.2),
    ((1.0, 0.2), ((0, 0),), 1e9),
    ((1.0,), ((0, 3),), 0.3),
)
BATCHES = 12


@check
def fit_together(function):
    """``function(net, batches, limit)``, on each rank: train until the mean loss is low; return the updates."""
    for scales, broken, limit in CASES:
        lost = "".join(f", batch {i} of rank {rank} is broken" for rank, i in broken)
        given = f"{many(len(scales), 'rank')}, limit {limit:g}{lost}"
        batches = [[_batch(scale, i, (rank, i) in broken) for i in range(BATCHES)] for rank, scale in enumerate(scales)]
        updates, want = _alone(batches, limit)
        found, _ = run_on_ranks(_fit, len(scales), given, function, batches, limit)
        for rank, (told, parameters) in enumerate(found):
            if number(told) != updates:
                raise Wrong(f"{given}: rank {rank} should return {many(updates, 'update')}, it returned {typed(told)}")
            if not torch.allclose(parameters, want, rtol=1e-4, atol=1e-5):
                raise Wrong(
                    f"{given}: after {many(updates, 'update')} rank {rank} should have the parameters {brief(want)}, "
                    f"it has {brief(parameters)}"
                )
    return "all ranks skip the same batches and stop at the same one, with the parameters of one process"


def _batch(scale, number, broken):
    X = torch.randn(6, 2, generator=torch.Generator().manual_seed(int(100 * scale) + number)) * scale
    y = X @ torch.tensor([[1.5], [-0.5]]) + 0.3 * scale
    return (X, y * BROKEN) if broken else (X, y)


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
