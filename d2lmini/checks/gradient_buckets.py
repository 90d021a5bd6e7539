"""Checks of the exercises on buckets: which gradients travel together, and when a bucket is on its way."""

from itertools import pairwise

import torch
from torch import nn

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, listed, many, number, reals, typed

SIZES = (
    ([8, 8, 8], 16),
    ([400, 40, 4000, 40], 4000),
    ([5, 3, 4, 8, 1], 8),
    ([7], 10),
    ([7], 3),
    ([9, 9, 2, 9], 4),
    ([1] * 5, 100),
    ([], 10),
    ([9, 0], 4),
)


@check
def bucket_plan(function):
    """``function(sizes, limit)``: buckets of places, from the last place to the first, each as full as may be."""
    for sizes, limit in SIZES:
        given = f"sizes {brief(sizes)}, limit {limit}"
        answer, want = attempt(function, list(sizes), limit, given=given), _plan(sizes, limit)
        got = _buckets(answer)
        if got is None:
            raise Wrong(f"{given}: expected {want}, lists of places; got {typed(answer)}")
        if got != want:
            raise Wrong(f"{given}: expected {want}, got {brief(got)}{_slip(got, sizes, limit)}")
    return "buckets go from the last gradient to the first, are as full as may be, and a large gradient has its own"


def _plan(sizes, limit):
    buckets = []
    for place in reversed(range(len(sizes))):
        if not buckets or sum(sizes[other] for other in buckets[-1]) + sizes[place] > limit:
            buckets.append([])
        buckets[-1].append(place)
    return buckets


def _buckets(answer):
    """Return the answer as lists of numbers, whoever made lists and numbers; None where it is something else."""
    rows = listed(answer)
    buckets = [None] if rows is None else [reals(row) for row in rows]
    return None if None in buckets else buckets


def _slip(got, sizes, limit):
    """Return a hint on what is wrong with these buckets."""
    places = [place for bucket in got for place in bucket]
    if sorted(places) != list(range(len(sizes))):
        return " (every place must be in one bucket, once)"
    if [] in got:
        return " (a bucket is empty)"
    if places != sorted(places, reverse=True):
        return " (places must go from the last to the first: that is the order in which gradients come)"
    heavy = [b for b in got if len(b) > 1 and sum(sizes[int(place)] for place in b) > limit]
    return f" ({heavy[0]} has more than {limit} bytes)" if heavy else " (a bucket could hold more)"


# Widths of a chain of layers, the layers' places in the list of parameters, and buckets. Gradients come from the last
# layer to the first, so the buckets fill up in their order, but here not one by one, there not in a bucket's order.
NETS = (
    ((2, 3, 2, 4, 2), [0, 1, 2, 3], [[3, 2], [1, 0]]),
    ((2, 3, 2, 4, 2), [0, 1, 2, 3], [[3], [2, 1], [0]]),
    ((2, 3, 2), [0, 1], [[1, 0]]),
    ((2, 3, 2), [0, 1], [[0, 1]]),
    ((2, 3, 2, 4, 2), [3, 0, 2, 1], [[1, 2], [0, 3]]),
    ((2, 3, 2, 4, 2, 5, 2), [2, 5, 0, 3, 1, 4], [[3, 4], [5, 1], [0, 2]]),
)


@check
def bucket_hook(function):
    """``function(parameters, buckets, launch)``: hooks that call ``launch(number, gradients)`` for a full bucket."""
    for widths, order, buckets in NETS:
        _try_hook(function, widths, order, buckets)
    return "each bucket goes off once in each step, with its gradients, as soon as the last of them is there"


def _try_hook(function, widths, order, buckets):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(a, b, bias=False) for a, b in pairwise(widths)))
    parameters, arrived, launched = [None] * len(order), [], []
    for layer, place in enumerate(order):
        parameters[place] = net[layer].weight
        net[layer].weight.register_post_accumulate_grad_hook(lambda _, place=place: arrived.append(place))

    def launch(number, gradients):
        gradients = list(gradients)
        copies = [g.clone() if torch.is_tensor(g) else g for g in gradients]
        launched.append((number, copies, [g.data_ptr() for g in gradients if torch.is_tensor(g)], list(arrived)))

    given = f"{many(len(parameters), 'parameter')}, buckets {buckets}"
    attempt(lambda: [function(list(parameters), [list(bucket) for bucket in buckets], launch)], given=given)
    for step in range(4):
        here = f"{given}: in step {step}" + (step == 3) * ", which adds to the gradients of the step before,"
        if step < 3:
            net.zero_grad(set_to_none=step != 1)
        arrived.clear()
        launched.clear()
        try:
            (net(torch.ones(1, widths[0]) + step) ** 2).sum().backward()
        except Exception as error:
            raise Wrong(f"{here} backward raised {type(error).__name__}: {error}") from error
        _compare(here, launched, parameters, buckets)


def _compare(given, launched, parameters, buckets):
    numbers = [number(told) for told, *_ in launched]
    if numbers != list(range(len(buckets))):
        told = brief([told for told, *_ in launched])
        raise Wrong(f"{given} expected the buckets {list(range(len(buckets)))} to go off in this order, got {told}")
    for bucket, (_, gradients, places, arrived) in zip(buckets, launched):
        name = f"bucket {buckets.index(bucket)}"
        want = [parameters[place].grad for place in bucket]
        missing = [place for place in bucket if place not in arrived]
        if any(gradient is None for gradient in want):
            raise Wrong(f"{given} {name} has parameters without .grad in the end: leave the gradients where they are")
        early = f" (it went off before the gradient of {missing[0]} was there)" if missing else ""
        if len(gradients) != len(want) or not all(torch.is_tensor(g) for g in gradients):
            raise Wrong(f"{given} expected {many(len(want), 'gradient')} in {name}, got {brief(gradients)}{early}")
        if _equal(gradients, [parameters[place].detach() for place in bucket]):
            raise Wrong(f"{given} {name} holds parameters: a hook gets the parameter, its gradient is .grad")
        if not _equal(gradients, want):
            raise Wrong(f"{given} {name} should hold .grad of {bucket}, in this order; its numbers are others{early}")
        if places != [gradient.data_ptr() for gradient in want]:
            raise Wrong(f"{given} {name} holds other tensors than .grad: a sum in place would leave .grad as it is")
        if not missing and arrived[-1] not in bucket:
            raise Wrong(f"{given} {name} went off only after the gradient of {arrived[-1]}, which is not in it")


def _equal(ours, theirs):
    return len(ours) == len(theirs) and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours, theirs))
