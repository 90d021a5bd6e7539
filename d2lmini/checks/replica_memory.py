"""Checks of the exercises on replicas: whether they are copies, and what summing over them copies."""

import torch

from d2lmini.checks.mechanism import Wrong, attempt, check, many, reals, typed


@check
def share_memory(function):
    """``function(replicas)``: whether a tensor of one replica shares its memory with one of another."""
    for given, replicas, want in _replicas():
        answer = attempt(function, replicas, given=given)
        if not isinstance(answer, bool) and str(getattr(answer, "dtype", "")) not in ("bool", "torch.bool"):
            raise Wrong(f"{given}: expected True or False, got {typed(answer)}")
        if bool(answer) != want:
            raise Wrong(f"{given}: expected {want}, got {bool(answer)}")
    return "equal numbers are no sign of shared memory; another view of the same memory is"


def _replicas():
    """Yield what replicas are, the replicas, and whether two of them share memory."""
    W, b = torch.ones(2, 3), torch.ones(3)
    tied = torch.ones(3, 3)
    yield "three copies of a weight and a bias", [[W.clone(), b.clone()] for _ in range(3)], False
    yield "two replicas made by .to(device)", [[t.to("cpu") for t in (W, b)] for _ in range(2)], True
    yield "three replicas, the biases of the last two being one", [[W.clone(), c] for c in (b.clone(), b, b)], True
    yield "three replicas, the first and the last with one bias", [[W.clone(), c] for c in (b, b.clone(), b)], True
    yield "a copy whose weight is the other's, transposed", [[W, b], [W.T, b.clone()]], True
    yield "two copies, each of which uses one weight twice", [[t, t] for t in (tied, tied.clone())], False
    yield "a bias that is a part of another replica's weight", [[tied, b], [W, b.clone()], [W.clone(), tied[2]]], True
    yield "a copy whose bias is the other's, detached", [[W, b], [W.clone(), b.detach()]], True
    yield "a replica whose weight is a view of the other's, detached", [[W, b], [W.detach().view(6), b.clone()]], True
    yield "two copies, each with a parameter of no elements", [[W.clone(), torch.empty(0)] for _ in range(2)], False
    yield "one replica", [[W, b]], False
    yield "no replica", [], False


@check
def allreduce_bytes(function):
    """``function(nbytes, devices)``: bytes copied by the loop through device 0, in all and into device 0."""
    for nbytes, devices in ((100, 2), (516_272, 8), (1000, 5), (516_272, 2), (100, 1)):
        given = f"{nbytes:,} bytes of gradients, {many(devices, 'device')}"
        answer = attempt(function, nbytes, devices, given=given)
        want = [n * (devices - 1) * nbytes for n in (2, 1)]
        if reals(answer) != want:
            raise Wrong(f"{given}: expected {want[0]:,} bytes in all, {want[1]:,} into device 0, got {typed(answer)}")
    return "every copy begins or ends at device 0, and half of them end there"
