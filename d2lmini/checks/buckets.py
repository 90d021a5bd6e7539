"""Checks of the exercises on buckets: which gradients travel together, and when a bucket is on its way."""

from itertools import pairwise

import torch
from torch import nn

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many

SIZES = (([8, 8, 8], 16), ([400, 40, 4000, 40], 4000), ([5, 3, 4, 8, 1], 8), ([7], 10), ([7], 3), ([9, 9, 2, 9], 4),
         ([1] * 5, 100), ([], 10))  # fmt: skip


@check
def bucket_plan(function):
    """``function(sizes, limit)``: buckets of places, from the last place to the first, each as full as may be."""
    for sizes, limit in SIZES:
        given = f"sizes {brief(sizes)}, limit {limit}"
        got, want = attempt(function, list(sizes), limit, given=given), _plan(sizes, limit)
        rows = isinstance(got, (list, tuple)) and all(isinstance(bucket, (list, tuple)) for bucket in got)
        if not rows or [list(bucket) for bucket in got] != want:
            raise Wrong(f"{given}: expected {want}, got {brief(got)}{_slip(got, want, sizes, limit) if rows else ''}")
    return "buckets go from the last gradient to the first, are as full as may be, and a large gradient has its own"


def _plan(sizes, limit):
    buckets = []
    for place in reversed(range(len(sizes))):
        if not buckets or sum(sizes[other] for other in buckets[-1]) + sizes[place] > limit:
            buckets.append([])
        buckets[-1].append(place)
    return buckets


def _slip(got, want, sizes, limit):
    """Return a hint on what is wrong with these buckets."""
    places = [place for bucket in got for place in bucket]
    if sorted(places) != list(range(len(sizes))):
        return " (every place must be in one bucket, once)"
    if [] in [list(bucket) for bucket in got]:
        return " (a bucket is empty)"
    if places != sorted(places, reverse=True):
        return " (places must go from the last to the first: that is the order in which gradients come)"
    heavy = [b for b in got if len(b) > 1 and sum(sizes[place] for place in b) > limit]
    return f" ({heavy[0]} has more than {limit} bytes)" if heavy else " (a bucket could hold more)"


@check
def bucket_hook(function):
    """``function(parameters, buckets, launch)``: hooks that call ``launch(number, gradients)`` for a full bucket."""
    for widths, buckets in (((2, 3, 2), [[3, 2], [1, 0]]), ((2, 3, 2), [[3], [2, 1], [0]]), ((2, 2), [[1, 0]]),
                            ((3, 2, 4, 2), [[5, 4, 3], [2], [1, 0]])):  # fmt: skip
        _try_hook(function, widths, buckets)
    return "each bucket goes off once a step, with its gradients, as soon as the last of them is there"


def _try_hook(function, widths, buckets):
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(a, b) for a, b in pairwise(widths)))
    parameters, launched = list(net.parameters()), []

    def launch(number, gradients):
        started = [bucket for bucket in buckets[buckets.index(buckets[number]) + 1 :] if bucket]
        late = [place for bucket in started for place in bucket if fresh(place)]
        launched.append((number, [g.clone() if torch.is_tensor(g) else g for g in gradients], late))

    def fresh(place):
        return parameters[place].grad is not None and bool(parameters[place].grad.any())

    given = f"{many(len(parameters), 'parameter')}, buckets {buckets}"
    try:
        function(list(parameters), [list(bucket) for bucket in buckets], launch)
    except Exception as error:
        raise Wrong(f"{given}: your code raised {type(error).__name__}: {error}") from error
    for step in range(3):
        net.zero_grad(set_to_none=step != 1)
        launched.clear()
        try:
            (net(torch.ones(1, widths[0]) + step) ** 2).sum().backward()
        except Exception as error:
            raise Wrong(f"{given}: in step {step}, backward raised {type(error).__name__}: {error}") from error
        _compare(f"{given}: in step {step}", launched, parameters, buckets)


def _compare(given, launched, parameters, buckets):
    numbers = [number for number, *_ in launched]
    if numbers != list(range(len(buckets))):
        raise Wrong(f"{given} expected the buckets {list(range(len(buckets)))} to go off in this order, got {numbers}")
    for number, gradients, late in launched:
        want = [parameters[place].grad for place in buckets[number]]
        if len(gradients) != len(want) or not all(torch.is_tensor(g) for g in gradients):
            raise Wrong(f"{given} expected {many(len(want), 'gradient')} in bucket {number}, got {brief(gradients)}")
        values = [parameters[place].detach() for place in buckets[number]]
        if _equal(gradients, values):
            raise Wrong(f"{given} bucket {number} holds parameters: a hook gets the parameter, its gradient is .grad")
        if not _equal(gradients, want):
            raise Wrong(f"{given} bucket {number} holds other numbers than its gradients, in the bucket's order")
        if late:
            raise Wrong(f"{given} bucket {number} went off only after the gradients of later buckets were there")


def _equal(ours, theirs):
    return len(ours) == len(theirs) and all(a.shape == b.shape and torch.equal(a, b) for a, b in zip(ours, theirs))
