"""Checks of the exercises on working sets: separable convolutions, layers too large, largest batch, checkpoints."""

import math
from itertools import pairwise

import torch
from torch import nn

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, listed, number, typed
from d2lmini.measuring.layer_costs import profile
from d2lmini.models.alexnet import alexnet
from d2lmini.models.lenet import LeNet


@check
def separable_macs(function):
    """``function(inputs, outputs, kernel, height, width)``: MACs of a depthwise and a 1×1 convolution, same padding."""
    cases = ((1, 1, 1, 1, 1), (3, 8, 3, 5, 7), (8, 3, 5, 6, 4), (32, 64, 3, 28, 28), (7, 2, 1, 3, 3), (2, 9, 7, 1, 4))
    for inputs, outputs, kernel, height, width in cases:
        given = f"{inputs} → {outputs} channels, kernel {kernel}×{kernel}, picture {height}×{width}"
        with torch.device("meta"):
            each = nn.Conv2d(inputs, inputs, kernel, padding=kernel // 2, groups=inputs)
            rows = profile(nn.Sequential(each, nn.Conv2d(inputs, outputs, 1)), torch.empty(1, inputs, height, width))
        got = _number(attempt(function, inputs, outputs, kernel, height, width, given=given), given, "MACs")
        if not math.isclose(got, rows.macs, rel_tol=1e-6):  # as much as float32 holds
            parts = f"{rows[0].macs} for the depthwise and {rows[1].macs} for the 1×1 convolution"
            raise Wrong(f"{given}: expected {parts}, {rows.macs}; got {got:.10g}")
    return "the MACs of both convolutions, as a profile of the two counts them"


def _number(answer, given, unit):
    got = number(answer)
    if got is None:
        raise Wrong(f"{given}: expected a number of {unit}, got {typed(answer)}")
    return got


def _shared(*widths):
    """Return linear layers with one activation for all, which is called on as many numbers as each of them makes."""
    activation = nn.ReLU()
    return nn.Sequential(*(layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), activation)))


@check
def too_large(function):
    """``function(rows, nbytes)``: names of the rows whose working set is larger than `nbytes`, the largest first."""
    with torch.device("meta"):
        cases = {"LeNet, 2 images": profile(LeNet(), torch.empty(2, 1, 28, 28)),
                 "AlexNet, 1 image": profile(alexnet(), torch.empty(1, 3, 224, 224)),
                 "AlexNet, 64 images": profile(alexnet(), torch.empty(64, 3, 224, 224)),
                 "a layer used twice, first on more": profile(_shared(8, 200, 4), torch.empty(50, 8)),
                 "a layer used twice, first on less": profile(_shared(8, 4, 200), torch.empty(50, 8))}  # fmt: skip
    for what, rows in cases.items():
        sizes = sorted(row.working_set for row in rows)
        for nbytes in (0, *sizes, sizes[-1] - 1):
            given = f"{what}, {nbytes} bytes"
            got = attempt(function, list(rows), nbytes, given=given)
            _try_names(given, got, rows, nbytes)
    return "the layers whose inputs, outputs and weights together do not fit, the largest first"


def _try_names(given, answer, rows, nbytes):
    got, size = listed(answer), {}
    for row in rows:
        size[row.name] = max(row.working_set, size.get(row.name, 0))
    want = {name for name in size if size[name] > nbytes}
    if got is None or not all(isinstance(name, str) and name in size for name in got):
        raise Wrong(f"{given}: expected a list of names of layers, got {typed(answer)}")
    if len(set(got)) != len(got):
        raise Wrong(f"{given}: a name is there twice in {brief(got)}")
    if set(got) != want:
        name = sorted(set(got) ^ want)[0]
        fits = "fits" if name not in want else "does not fit"
        raise Wrong(f"{given}: the working set of {name}, {size[name]} bytes, {fits}; got {brief(got)}")
    for a, b in pairwise(got):
        if size[a] < size[b]:
            raise Wrong(f"{given}: {b}, {size[b]} bytes, should come before {a}, {size[a]}")


@check
def largest_batch(function):
    """``function(capacity, parameters, per_image, optimizer)``: the most images that fit beside a network's memory."""
    copies = {"sgd": 2, "momentum": 3, "adam": 4}  # weights, gradients, and one or two numbers of the optimiser
    cases = ((1000, 20, 7), (3 * 2**30, 60_965_224, 12_466_848), (16_000, 1000, 1000), (16_001, 1000, 1),
             (8_000, 1000, 500), (3_999, 1000, 10), (100, 0, 100))  # fmt: skip
    for capacity, parameters, per_image in cases:
        for optimizer, count in copies.items():
            given = f"{capacity} bytes, {parameters} parameters, {per_image} bytes an image, {optimizer}"
            want = max(0, (capacity - 4 * count * parameters) // per_image)
            got = _number(attempt(function, capacity, parameters, per_image, optimizer, given=given), given, "images")
            if got != want:
                raise Wrong(f"{given}: the network takes {4 * count * parameters} bytes, so expected {want} images, "
                            f"got {got:.10g}")  # fmt: skip
    return "what the network and its optimiser leave, in whole images, and none where they leave nothing"


@check
def checkpointed_peak(function):
    """``function(saved, k)``: the most bytes kept in a backward pass with checkpoints before every k-th layer."""
    for saved in ([5], [1] * 16, [8, 1, 1, 1, 1], [1, 1, 1, 1, 8], [3, 1, 4, 1, 5, 9, 2, 6], [9, 1, 1, 9, 1, 1, 1],
                  [1, 50, 1, 1, 1, 1, 30]):  # fmt: skip
        for k in (1, 2, 3, 4, len(saved), len(saved) + 3):
            given = f"saved = {saved}, k = {k}"
            kept = _kept_by_segments(saved, k)
            got = _number(attempt(function, list(saved), k, given=given), given, "bytes")
            if got != max(kept):
                raise Wrong(f"{given}: backward through the segments, the last one first, keeps {brief(kept)} bytes, "
                            f"at most {max(kept)}; got {got:.10g}")  # fmt: skip
    return "checkpoints and one recomputed segment at a time, uneven layers and remainders too"


def _kept_by_segments(saved, k):
    """Return what is kept while backward is in each segment, the last one first."""
    starts = range(0, len(saved), k)
    return [sum(saved[s] for s in starts if s <= start) + sum(saved[start + 1 : start + k]) for start in starts][::-1]
