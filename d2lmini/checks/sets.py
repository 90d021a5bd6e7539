"""Checks of the exercises on working sets: separable convolutions, largest batch, checkpoints."""

import math

import torch
from torch import nn

from d2lmini.checks.mechanism import Wrong, apart, ask, brief, check
from d2lmini.measuring.layer_costs import profile


@check
def separable_macs(function):
    """``function(inputs, outputs, kernel, height, width)``: MACs of a depthwise and a 1×1 convolution, same padding."""
    cases = ((1, 1, 1, 1, 1), (3, 8, 3, 5, 7), (8, 3, 5, 6, 4), (32, 64, 3, 28, 28), (7, 2, 1, 3, 3), (2, 9, 7, 1, 4))
    for inputs, outputs, kernel, height, width in cases:
        given = f"{inputs} → {outputs} channels, kernel {kernel}×{kernel}, picture {height}×{width}"
        with torch.device("meta"):
            each = nn.Conv2d(inputs, inputs, kernel, padding=kernel // 2, groups=inputs)
            rows = profile(nn.Sequential(each, nn.Conv2d(inputs, outputs, 1)), torch.empty(1, inputs, height, width))
        got = ask(function, inputs, outputs, kernel, height, width, given=given, what="a number of MACs")
        if not math.isclose(got, rows.macs, rel_tol=1e-6):  # as much as float32 holds
            parts = f"{rows[0].macs} for the depthwise and {rows[1].macs} for the 1×1 convolution"
            told, found = apart(rows.macs, got)
            raise Wrong(f"{given}: expected {parts}, {told}; got {found}")
    return "the MACs of both convolutions, as a profile of the two counts them"


@check
def largest_batch(function):
    """``function(capacity, parameters, per_image, optimizer)``: the most images that fit beside a network's memory."""
    copies = {"sgd": 2, "momentum": 3, "adam": 4}  # weights, gradients, and one or two numbers of the optimizer
    cases = (
        (1000, 20, 7),
        (3 * 2**30, 60_965_224, 12_466_848),
        (16_000, 1000, 1000),
        (16_001, 1000, 1),
        (16_100, 1000, 1000),  # something is left, and too little for one image
        (8_000, 1000, 500),
        (3_999, 1000, 10),
        (100, 0, 100),
    )
    for capacity, parameters, per_image in cases:
        for optimizer, count in copies.items():
            given = f"{capacity} bytes, {parameters} parameters, {per_image} bytes for each image, {optimizer}"
            want = max(0, (capacity - 4 * count * parameters) // per_image)
            got = ask(function, capacity, parameters, per_image, optimizer, given=given, what="a number of images")
            if got != want:
                told, found = apart(want, got)
                raise Wrong(
                    f"{given}: the network takes {4 * count * parameters} bytes, so expected {told} images, got {found}"
                )
    return "what the network and its optimizer leave, in whole images, and none where they leave nothing"


@check
def checkpointed_peak(function):
    """``function(saved, k)``: the most bytes kept in a backward pass with checkpoints before every k-th layer."""
    for saved in (
        [5],
        [1] * 16,
        [8, 1, 1, 1, 1],
        [1, 1, 1, 1, 8],
        [3, 1, 4, 1, 5, 9, 2, 6],
        [9, 1, 1, 9, 1, 1, 1],
        [1, 50, 1, 1, 1, 1, 30],
    ):
        for k in (1, 2, 3, 4, len(saved), len(saved) + 3):
            given = f"saved = {saved}, k = {k}"
            kept = _kept_by_segments(saved, k)
            got = ask(function, list(saved), k, given=given, what="a number of bytes")
            if got != max(kept):
                told, found = apart(max(kept), got)
                raise Wrong(
                    f"{given}: backward through the segments, the last one first, keeps {brief(kept)} bytes, "
                    f"at most {told}; got {found}"
                )
    return "checkpoints and one recomputed segment at a time, uneven layers and remainders too"


def _kept_by_segments(saved, k):
    """Return what is kept while backward is in each segment, the last one first."""
    starts = range(0, len(saved), k)
    return [sum(saved[s] for s in starts if s <= start) + sum(saved[start + 1 : start + k]) for start in starts][::-1]
