"""torch's warning about a collective inside an autograd graph: gradients flow past it as if it were not there.

A group of NCCL or gloo calls an operation of ``c10d`` for each collective, and autograd notes the tensors that it
returns. Our groups are called without that operation, so it is done here, as in torch's
``autograd_not_implemented_fallback.cpp``.
"""

import functools
import sys
import warnings

import torch

_SENTENCE = (
    "c10d::{}: an autograd kernel was not registered to the Autograd key(s) but we are trying to backprop through it. "
    "This may lead to silently incorrect behavior. This behavior is deprecated and will be removed in a future version "
    "of PyTorch. If your operator is differentiable, please ensure you have registered an autograd kernel to the "
    "correct Autograd key (e.g. DispatchKey::Autograd, DispatchKey::CompositeImplicitAutograd). If your operator is "
    "not differentiable, or to squash this warning and use the previous behavior, please register "
    "torch::CppFunction::makeFallthrough() to DispatchKey::Autograd."
)


def note(name, args):
    """Let backward warn when it passes the tensors that a call of the operation ``c10d::name`` has returned."""
    inputs = [tensor for argument in args for tensor in _tensors(argument)]
    if not (torch.is_grad_enabled() and _returns_tensors(name) and any(tensor.requires_grad for tensor in inputs)):
        return
    for tensor in _tensors(args[0]):
        if tensor.requires_grad:
            tensor.register_hook(lambda gradient: _warn(name))
        elif tensor.is_floating_point() or tensor.is_complex():
            WarnNotImplemented.apply(name, tensor, *inputs)


@functools.cache
def _returns_tensors(name):
    """Return whether the operation returns its first argument: autograd looks at tensors and at plain lists of them."""
    first = getattr(torch.ops.c10d, name).default._schema.returns[:1]
    return [str(one.type) for one in first] in (["Tensor"], ["List[Tensor]"])


def _tensors(argument):
    if isinstance(argument, torch.Tensor):
        return [argument]
    return [one for one in argument if isinstance(one, torch.Tensor)] if isinstance(argument, (list, tuple)) else []


class WarnNotImplemented(torch.autograd.Function):
    """Stands for torch's node of that name: it warns, and has no gradients."""

    @staticmethod
    def forward(ctx, name, output, *inputs):
        """Return the output, which is filled already."""
        ctx.name = name
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx, gradient):
        """Warn."""
        _warn(ctx.name)
        return (None,) * len(ctx.needs_input_grad)


def _warn(name):
    frame, level = sys._getframe(1), 2
    while frame.f_back and not frame.f_code.co_filename.endswith("graph.py"):  # where torch's engine was called
        frame, level = frame.f_back, level + 1
    warnings.warn(_SENTENCE.format(name), stacklevel=level)
