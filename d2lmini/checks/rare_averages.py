"""Check of the lab on rare averages: DiLoCo on ranks."""

import copy

import torch
from torch import nn
from torch.nn import functional as F

from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, called, check, many, scored
from d2lmini.checks.traced import run_on_ranks

CASES = ((3, 4, 8), (2, 2, 6), (4, 1, 3))  # ranks, updates between two averages, updates in all
INNER, OUTER, MOMENTUM = 0.05, 0.7, 0.9


@check
def diloco(function):
    """``function(net, inner, outer, batches, H)``, on each rank: every H updates an outer step towards the mean."""
    kilobytes = 0
    for ranks, every, updates in CASES:
        given = f"{many(ranks, 'rank')}, {updates} updates, H = {every}"
        found, spans = run_on_ranks(_train, ranks, given, function, every, updates)
        want = _by_hand(ranks, every, updates)
        for rank, got in enumerate(found):
            if off := first_off("the parameters", want, got, rtol=1e-9, atol=1e-12):
                raise Wrong(f"{given}: on rank {rank} {off}{_hint(got, ranks, every, updates)}")
        sent = sum(span.nbytes for span in spans) / ranks / want.nbytes  # in parameters
        most = 2 * (ranks - 1) / ranks * updates / every
        if sent > 1.01 * most:
            raise Wrong(
                f"{given}: the parameters are right, but a rank sends {sent:.3g} times their bytes; "
                f"{most:.3g} times suffice"
            )
        kilobytes = max(kilobytes, sent)
    unit = "times the parameters sent by each of 4 ranks in 3 meetings"
    return f"all ranks agree; {scored('diloco', kilobytes, 4.5, unit, '.3g')}"


def _net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)).double()


def _optimizers(net):
    outer = torch.optim.SGD(net.parameters(), OUTER, momentum=MOMENTUM, nesterov=True)
    return torch.optim.SGD(net.parameters(), INNER, momentum=MOMENTUM), outer


def _batches(rank, updates):
    numbers = torch.Generator().manual_seed(rank + 1)
    rows = [torch.randn(5, 5, generator=numbers, dtype=torch.float64) for _ in range(updates)]
    return [(row[:, :4], row[:, 4:] + rank) for row in rows]


def _flat(net):
    return torch.cat([p.detach().flatten().cpu() for p in net.parameters()])


def _train(rank, function, every, updates):
    net = _net().to("sim")
    batches = [(x.to("sim"), y.to("sim")) for x, y in _batches(rank, updates)]
    called(function, net, *_optimizers(net), batches, every)
    return _flat(net)


def _inner_update(net, inner, batch):
    inner.zero_grad()
    F.mse_loss(net(batch[0]), batch[1]).backward()
    inner.step()


def _by_hand(ranks, every, updates, outer_step=True):
    """Return the parameters that one process finds which plays all ranks."""
    center, nets = _net(), [_net() for _ in range(ranks)]
    inners, outer = [_optimizers(net)[0] for net in nets], _optimizers(center)[1]
    batches = [_batches(rank, updates) for rank in range(ranks)]
    for step in range(updates):
        for net, inner, own in zip(nets, inners, batches):
            _inner_update(net, inner, own[step])
        if (step + 1) % every:
            continue
        for p, *parts in zip(center.parameters(), *(net.parameters() for net in nets)):
            mean = torch.stack([part.detach() for part in parts]).mean(0)
            p.grad = p.detach() - mean
            if not outer_step:
                p.data.copy_(mean)
        if outer_step:
            outer.step()
        for net in nets:
            net.load_state_dict(copy.deepcopy(center.state_dict()))
    return _flat(center)


def _hint(got, ranks, every, updates):
    if torch.allclose(got, _by_hand(ranks, every, updates, outer_step=False)):
        return " (the ranks end at their mean: the outer step is missing)"
    if torch.allclose(got, _flat(_net())):
        return " (they are the first ones)"
    return ""
