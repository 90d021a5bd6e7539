"""Checks of the exercises on code that must run on every device and on every rank."""

import torch

from d2lmini import sim
from d2lmini.checks.mechanism import Wrong, attempt, brief, check, need_gpus, number
from d2lmini.checks.traced import attempt_traced


@check
def causal_mask(function):
    """``function(tokens)``: for tokens of shape (batch, T), True at (T, T) where position i may look at j <= i."""
    for batch, length in ((2, 5), (3, 1), (1, 4), (4, 0)):
        given = f"tokens of shape {[batch, length]}"
        mask = attempt(function, torch.zeros(batch, length, dtype=torch.long), given=given)
        want = torch.tensor([[j <= i for j in range(length)] for i in range(length)], dtype=torch.bool)
        want = want.reshape(length, length)
        if not isinstance(mask, torch.Tensor) or mask.dtype != torch.bool or mask.shape != want.shape:
            raise Wrong(f"{given}: expected a tensor of bool of shape {list(want.shape)}, got {brief(mask)}")
        if not torch.equal(mask, want):
            raise Wrong(f"{given}: True must stand where j <= i, and only there")
        there = attempt(function, torch.zeros(batch, length, dtype=torch.long, device="meta"), given=f"{given} on meta")
        if there.device.type != "meta":
            raise Wrong(f"{given} on meta: the mask is on {there.device}; make it where the tokens are")
    return "the mask is right, and on the device of the tokens"


@check
def one_wait(function):
    """``function(losses)``: the mean of a list of losses on a device, as a float, for one wait of the host."""
    need_gpus(1)
    for values in ([3.0], [1.0, 2.0, 6.0], [float(i * i) for i in range(9)]):
        given, want = f"{len(values)} losses on sim:0", sum(values) / len(values)
        losses = [torch.tensor(value, device="sim:0") for value in values]
        got, spans = attempt_traced(function, losses, given=given)
        if isinstance(got, torch.Tensor) or number(got) is None:
            raise Wrong(f"{given}: expected a number of Python, got {brief(got)}: .item() reads one")
        if abs(got - want) > 1e-5 * want:
            raise Wrong(f"{given}: expected {want:g}, got {brief(got)}")
        waits = sum(span.kind == "wait" for span in spans)
        if waits != 1:
            raise Wrong(f"{given}: the host waited {waits} times; put them together on the device, then read once")
    return "the mean is right, and the host waited once"


@check
def joined_mean(function):
    """``function(values)``, called by every rank with a vector that may be empty: the mean of all ranks' values."""
    need_gpus()
    for shards in ([[1.0, 2.0, 6.0], []], [[4.0], [8.0]], [[1.0], [2.0, 3.0]], [[], [5.0, 7.0]]):
        given = f"rank 0 with {brief(shards[0])}, rank 1 with {brief(shards[1])}"
        answers = attempt(lambda shards: sim.spawn(_rank, (function, shards), nprocs=2), shards, given=given)
        want = sum(map(sum, shards)) / sum(map(len, shards))
        for rank, got in enumerate(answers):
            if number(got) is None or not abs(number(got) - want) < 1e-5 * want:
                raise Wrong(f"{given}: expected {want:g} on rank {rank}, got {brief(got)}")
    return "every rank has the mean of all values, also where a rank has none"


def _rank(rank, function, shards):
    got = function(torch.tensor(shards[rank], device="sim"))
    return got.item() if isinstance(got, torch.Tensor) and got.numel() == 1 else got


@check
def placed_step(function):
    """``function(values, loss, device)``: a weight made of a list, on the device, after a step of SGD of rate 0.1."""
    need_gpus()
    for values in ([1.0, 2.0], [4.0, -1.0, 0.5], [3.0]):
        for device in ("cpu", "sim:1"):
            for power, gradient in ((2, [2 * value for value in values]), (1, [1.0] * len(values))):
                given = f"{brief(values)} on {device}, the loss (w**{power}).sum()"
                got = attempt(function, values, lambda w, power=power: (w**power).sum(), device, given=given)
                _stepped(got, torch.tensor(values), torch.tensor(gradient), torch.device(device), given)
    return "one step was taken, on the device that was asked for"


def _stepped(got, start, gradient, device, given):
    if not isinstance(got, torch.Tensor) or got.shape != start.shape:
        raise Wrong(f"{given}: expected a tensor of shape {list(start.shape)}, got {brief(got)}")
    if got.device != device:
        raise Wrong(f"{given}: the weight is on {got.device}")
    want, found = start - 0.1 * gradient, got.detach().cpu()
    if torch.equal(found, start):
        raise Wrong(f"{given}: the weight did not change; the optimiser must hold the tensor that you return")
    if not torch.allclose(found.float(), want, rtol=1e-4, atol=1e-6):
        raise Wrong(f"{given}: expected {brief(want)}, got {brief(found)}")
