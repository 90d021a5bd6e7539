"""Multiply-adds of a layer, from the shapes of what goes in and what comes out.

A multiply-add, MAC for short, is one multiplication whose product is added to a sum: two floating-point operations.
Counted are those of products and convolutions, as is usual; biases, activations, pools and normalisations do a few
operations for each number and cost their bytes. Zeros that pad a picture are multiplied too.
"""

import math

from torch import nn


def linear_macs(layer, x, y):
    """Return the MACs of a dense layer: an output sums over all inputs."""
    return y.numel() * layer.in_features


def conv_macs(layer, x, y):
    """Return the MACs of a convolution: an output sums over a window in
    each channel of its group.
    """
    window = math.prod(layer.kernel_size)
    return y.numel() * window * (layer.in_channels // layer.groups)


FORMULAS = {nn.Linear: linear_macs, nn.Conv1d: conv_macs, nn.Conv2d: conv_macs, nn.Conv3d: conv_macs}

# Layers of these modules of torch.nn multiply no matrices.
_FREE = {f"torch.nn.modules.{name}" for name in (
    "activation", "batchnorm", "channelshuffle", "container", "dropout", "flatten", "fold", "instancenorm", "loss",
    "normalization", "padding", "pixelshuffle", "pooling", "sparse", "upsampling")}  # fmt: skip


def layer_macs(layer, x, y):
    """Return the MACs of one call of `layer` with first input `x` and output `y`, or None if no formula is known.

    Layers that multiply no matrices have 0. A subclass counts as its parent, whose shapes it is expected to keep.
    """
    for kind in type(layer).__mro__:
        if kind in FORMULAS:
            return FORMULAS[kind](layer, x, y)
    if isinstance(layer, nn.MultiheadAttention):
        return None
    free = isinstance(layer, nn.Identity) or any(kind.__module__ in _FREE for kind in type(layer).__mro__)
    return 0 if free else None
