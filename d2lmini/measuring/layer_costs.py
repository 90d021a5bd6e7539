"""What each layer of a network computes and holds: multiply-adds, parameters, and the bytes of its working set.

    with torch.device("meta"):                       # shapes without numbers: nothing is computed, nothing is stored
        net, X = alexnet(), torch.empty(128, 3, 224, 224)
    print(profile(net, X))

A layer's *working set* is what it needs at once to do its work: its inputs, its outputs and its weights. What it
*saves* is what autograd keeps from the forward pass until the backward pass has used it.

A multiply-add, MAC for short, is one multiplication whose product is added to a sum: two floating-point operations.
Counted are those of products and convolutions, as is usual; biases, activations, pools and normalisations do a few
operations for each number and cost their bytes. Zeros that pad a picture are multiplied too.
"""

import math
from dataclasses import dataclass

import torch
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.flop_counter import FlopCounterMode

from d2lmini.measuring.operations import tensors


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
_FREE = {
    f"torch.nn.modules.{name}"
    for name in (
        "activation",
        "batchnorm",
        "channelshuffle",
        "container",
        "dropout",
        "flatten",
        "fold",
        "instancenorm",
        "loss",
        "normalization",
        "padding",
        "pixelshuffle",
        "pooling",
        "sparse",
        "upsampling",
    )
}


def layer_macs(layer, x, y):
    """Return the MACs of one call of a layer, or None if no formula is known.

    Layers that multiply no matrices have 0. A subclass counts as its parent, whose shapes it is expected to keep.

    Args:
        layer: The module.
        x: Its first input.
        y: Its output.
    """
    for kind in type(layer).__mro__:
        if kind in FORMULAS:
            return FORMULAS[kind](layer, x, y)
    if isinstance(layer, nn.MultiheadAttention):
        return None
    free = isinstance(layer, nn.Identity) or any(kind.__module__ in _FREE for kind in type(layer).__mro__)
    return 0 if free else None


@dataclass(frozen=True)
class Row:
    """One call of one layer.

    Attributes:
        name: Where it is in the model.
        kind: Its class.
        macs: Multiply-adds of the forward pass; None where no formula is known.
        parameters: How many parameters it has, without those of an earlier row.
        input_bytes, weight_bytes: What it reads.
        output_bytes: What it writes into memory that is not its inputs'; 0 for a view or work in place.
        saved_bytes: Memory that autograd keeps for it, without parameters and what an earlier row has kept.
    """

    name: str
    kind: str
    macs: int | None
    parameters: int
    input_bytes: int
    output_bytes: int
    weight_bytes: int
    saved_bytes: int

    @property
    def working_set(self):
        """The bytes of inputs, outputs and weights."""
        return self.input_bytes + self.output_bytes + self.weight_bytes

    @property
    def intensity(self):
        """FLOPs a byte, two FLOPs a MAC, if the working set is moved once; None where the MACs are not known."""
        return None if self.macs is None else 2 * self.macs / self.working_set if self.working_set else 0.0


class Profile(list):
    """The rows of a forward pass, one for each call of a layer, in order. Printed, it is a table.

    Attributes:
        macs, parameters, saved_bytes: Of the whole model.
        elsewhere_macs, elsewhere_parameters, elsewhere_saved: What of these is in no row: computed by functions that
            the model calls itself, or by layers without a formula.
    """

    def __init__(self, rows, macs, parameters, saved_bytes):
        super().__init__(rows)
        self.macs, self.parameters, self.saved_bytes = macs, parameters, saved_bytes
        self.elsewhere_macs = macs - sum(row.macs or 0 for row in self)
        self.elsewhere_parameters = parameters - sum(row.parameters for row in self)
        self.elsewhere_saved = saved_bytes - sum(row.saved_bytes for row in self)

    @property
    def unknown(self):
        """The names of layers whose MACs no formula gives: `macs` may leave them out."""
        return list(dict.fromkeys(row.name for row in self if row.macs is None))

    def __str__(self):
        lines = [("layer", "kind", "MMACs", "parameters", "MB in", "out", "weights", "saved")]
        for row in self:
            sizes = (row.input_bytes, row.output_bytes, row.weight_bytes, row.saved_bytes)
            lines.append((row.name, row.kind, *_numbers(row.macs, row.parameters, *sizes)))
        elsewhere = (self.elsewhere_macs, self.elsewhere_parameters, None, None, None, self.elsewhere_saved)
        if any(elsewhere):
            lines.append(("elsewhere", "", *_numbers(*elsewhere)))
        lines.append(("all", "", *_numbers(self.macs, self.parameters, None, None, None, self.saved_bytes)))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        sides = "<<>>>>>>"
        text = [
            "  ".join(f"{word:{side}{width}}" for word, side, width in zip(line, sides, widths, strict=True))
            for line in lines
        ]
        if self.unknown:
            text.append(f"? no formula: {', '.join(self.unknown)}; the sum may leave them out")
        return "\n".join(line.rstrip() for line in text)


def profile(model, *inputs, **keywords):
    """Run ``model(*inputs, **keywords)`` once and return its `Profile`.

    A row stands for a call of a module that has no children. As any call, it moves running statistics and random
    generators on if the model is in training mode.

    Args:
        model: A module, on any device. With model and inputs on the meta device nothing is computed.
        inputs, keywords: What it is called with.

    Raises:
        TypeError: `model` is no module.
        ValueError: It has a lazy layer that was never called.

    Source: FLOPs are those of `torch.utils.flop_counter`, a multiply-add being half of two.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected a module to profile, got {type(model).__name__}")
    watch = _Watch(model)
    hooks = [
        hook
        for name, layer in model.named_modules()
        if not any(True for _ in layer.children())
        for hook in watch.over(name or "(model)", layer)
    ]
    try:
        with (
            torch.enable_grad(),
            FlopCounterMode(display=False) as counter,
            saved_tensors_hooks(watch.keep, lambda tensor: tensor),
        ):
            model(*inputs, **keywords)
    finally:
        for hook in hooks:
            hook.remove()
    parameters = sum(p.numel() for p in model.parameters())
    return Profile(watch.rows, counter.get_total_flops() // 2, parameters, sum(watch.saved.values()))


class _Watch:
    """Makes the rows while the model runs, and notes what autograd keeps meanwhile."""

    def __init__(self, model):
        self.rows, self.running, self.saved = [], [], {}  # saved: by the call's number, None outside of layers
        self.calls = 0
        self.counted = set()  # parameters of earlier rows
        self.known = {_storage(t) for t in (*model.parameters(), *model.buffers())}
        self.kept = []  # tensors that autograd keeps: as long as they live, no other storage gets their address

    def over(self, name, layer):
        """Hook a layer; return the hooks."""

        def before(layer, args, keywords):
            self.running.append(self.calls)
            self.calls += 1

        def after(layer, args, keywords, output):
            self.note(name, layer, tensors((args, keywords)), tensors(output), self.running.pop())

        return (
            layer.register_forward_pre_hook(before, with_kwargs=True),
            layer.register_forward_hook(after, with_kwargs=True),
        )

    def note(self, name, layer, given, made, call):
        """Add the row of a call."""
        macs = layer_macs(layer, given[0], made[0]) if given and made else None
        weights = {id(p): p for p in layer.parameters()}
        new = sum(p.numel() for key, p in weights.items() if key not in self.counted)
        self.counted.update(weights)
        there = {_storage(t) for t in given}
        fresh = [t for t in made if _storage(t) not in there]
        sizes = (sum(t.nbytes for t in part) for part in (given, fresh, weights.values()))
        self.rows.append(Row(name, type(layer).__name__, macs, new, *sizes, self.saved.get(call, 0)))

    def keep(self, tensor):
        """Count memory that autograd keeps, once, for the innermost layer that is running.

        What is returned, autograd keeps instead. It must not be a result itself, which knows the graph that would then
        keep it: nothing would ever free the two.
        """
        key = _storage(tensor)
        if key not in self.known:
            self.known.add(key)
            self.kept.append(tensor.detach())
            call = self.running[-1] if self.running else None
            self.saved[call] = self.saved.get(call, 0) + tensor.untyped_storage().nbytes()
        return tensor.detach()


def _storage(tensor):
    return tensor.untyped_storage()._cdata


def _numbers(macs, parameters, *sizes):
    """Return a line's numbers as text: millions of MACs, parameters, megabytes."""
    words = ["" if size is None else f"{size / 1e6:,.{3 if size < 1e9 else 0}f}" for size in sizes]
    return "?" if macs is None else f"{macs / 1e6:,.2f}", f"{parameters:,}", *words
