"""Checks of the exercises on code that must run on every device and on every rank."""

from itertools import pairwise

import torch

import simgpu
from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many, need_gpus, number, typed
from d2lmini.checks.traced import attempt_traced


@check
def causal_mask(function):
    """``function(tokens)``: for tokens of shape (batch, T), True at (T, T) where position i may look at j <= i."""
    for batch, length in ((2, 5), (3, 1), (1, 4)):
        want = torch.tensor([[j <= i for j in range(length)] for i in range(length)])
        for device in ("cpu", "meta"):
            given = f"tokens of shape {[batch, length]} on {device}"
            mask = attempt(function, torch.zeros(batch, length, dtype=torch.long, device=device), given=given)
            kind = getattr(mask, "dtype", type(mask).__name__)
            if kind != torch.bool or mask.shape != want.shape:
                raise Wrong(f"{given}: expected a bool tensor of shape {list(want.shape)}, got {brief(mask)} ({kind})")
            if mask.device.type != device:
                raise Wrong(f"{given}: the mask is on {mask.device}; make it where the tokens are")
            if not mask.is_meta and not torch.equal(mask, want):
                raise Wrong(f"{given}: True must stand where j <= i, and only there")
    return "the mask is right, and on the device of the tokens"


@check
def one_wait(function):
    """``function(losses)``: the mean of a list of losses on a device, as a float, for one wait of the host."""
    need_gpus()
    for device, values in (("sim:1", [3.0]), ("sim:0", [1.0, 2.0, 6.0]), ("sim:1", [float(i * i) for i in range(9)])):
        given, want = f"{many(len(values), 'loss', 'es')} on {device}", sum(values) / len(values)
        losses = [torch.tensor(value, device=device) for value in values]
        got, spans = attempt_traced(function, losses, given=given)
        if isinstance(got, torch.Tensor) or number(got) is None:
            raise Wrong(f"{given}: expected a number of Python, got {typed(got)}: .item() reads one")
        if not abs(number(got) - want) <= 1e-5 * want:
            raise Wrong(f"{given}: expected {want:g}, got {brief(got)}")
        waits = sum(span.kind == "wait" for span in spans)
        if waits == 0:
            raise Wrong(f"{given}: the number was read before it was there; synchronise after a non-blocking copy")
        if waits != 1:
            raise Wrong(f"{given}: the host waited {many(waits, 'time')}; add them up on the device, then read once")
    return "the mean is right, and the host waited once"


@check
def joined_mean(function):
    """``function(values)``, called by every rank with a vector that may be empty: the mean of all ranks' values."""
    need_gpus()
    for shards in ([[1.0, 2.0, 6.0], []], [[4.0], [8.0]], [[1.0], [2.0, 4.5]], [[], [5.0, 7.0]]):
        given = f"rank 0 with {brief(shards[0])}, rank 1 with {brief(shards[1])}"
        answers = attempt(lambda shards: simgpu.spawn(_rank, (function, shards), nprocs=2), shards, given=given)
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
            for power in (2, 1):
                _try_step(function, values, torch.device(device), power)
    return "one step was taken, on the device that was asked for"


def _try_step(function, values, device, power):
    given, start, places = f"{brief(values)} on {device}, the loss (w**{power}).sum()", torch.tensor(values), []

    def loss(weight):
        places.append(weight.device)
        return (weight**power).sum()

    got, spans = attempt_traced(function, values, loss, str(device), given=given)
    if not isinstance(got, torch.Tensor) or got.shape != start.shape:
        raise Wrong(f"{given}: expected a tensor of shape {list(start.shape)}, got {typed(got)}")
    for place, what in ((got.device, "the weight is"), *((place, "the loss was computed") for place in places)):
        if place != device:
            raise Wrong(f"{given}: {what} on {place}")
    want, found = start - 0.1 * power * start ** (power - 1), got.detach().cpu()
    if torch.equal(found, start):
        raise Wrong(f"{given}: the weight did not change; the optimiser must hold the tensor that you return")
    if not torch.allclose(found.float(), want, rtol=1e-4, atol=1e-6):
        raise Wrong(f"{given}: expected {brief(want)}, got {brief(found)}")
    to_host = [span.name.endswith("→host") for span in spans if span.kind == "copy"]
    if any(back and not there for back, there in pairwise(to_host)):
        raise Wrong(f"{given}: the gradient went to the CPU and the weight came back; take the step on {device}")
