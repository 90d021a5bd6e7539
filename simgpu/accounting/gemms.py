"""The matrix multiplications that one PyTorch operation consists of, and the bytes that they move.

A convolution is the product of its patches with its filters, for each group (Chetlur et al., arXiv:1410.0759):
outputs × filters, over what a filter covers. Backward it is two: for the input's gradient and for the weight's. With
one channel a group it is none: PyTorch takes kernels without tiles for it (``_select_conv_backend`` in
aten/src/ATen/native/Convolution.cpp), whose few operations for each number hide behind its traffic.
"""

from math import prod

import torch

from simgpu.hardware.gemm import Gemm


def gemms_of(name, args, out):
    """Return the `Gemm`s of one operation, a tuple; empty for one that is no matrix multiplication.

    Args:
        name: The operation's, as `op_work.name_of` has it.
        args: The call's arguments.
        out: What it returned.
    """
    rule = _GEMM_RULES.get(name)
    return tuple(rule(args, out)) if rule else ()


def moved(*tensors):
    """Return the bytes of these tensors, each once; None takes none."""
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors if tensor is not None)


def reordered(x, other):
    """Return the bytes of bringing two pictures' channels last and back, 0 where that is not needed.

    Tensor cores read a pixel's channels side by side; cuDNN reorders what comes otherwise. Without 16-bit numbers the
    ordinary layout has kernels of its own.

    Source: NVIDIA, Convolutional layers user's guide, "tensor layouts".
    """
    last = x.dim() == 4 and x.is_contiguous(memory_format=torch.channels_last)
    return 0 if last or x.element_size() != 2 else 2 * moved(x, other)


def _matrices(left, right, out, *more):
    batch = left.shape[0] if left.dim() == 3 else 1
    yield Gemm(batch, left.shape[-2], right.shape[-1], left.shape[-1], moved(left, right, out, *more))


def _convolution(args, out):
    x, weight, groups = args[0], args[1], args[8]
    if depthwise(weight, groups):
        return
    sizes = _sizes(x, weight, out, groups, args[6])
    yield Gemm(groups, *sizes, moved(x, weight, out), reordered(x, out))


def _convolution_backward(args, out):
    grad, x, weight, mirrored, groups, wanted = args[0], args[1], args[2], args[7], args[9], args[10]
    if depthwise(weight, groups):
        return
    m, n, k = _sizes(x, weight, grad, groups, mirrored)
    if wanted[0]:  # a stride spreads the products over more results: fewer for each
        pixels = x.shape[0] * prod(x.shape[2:])
        channels = x.shape[1] // groups
        depth = max(1, round(m * n * k / max(1, pixels * channels)))
        yield Gemm(groups, pixels, channels, depth, moved(grad, weight, x), reordered(x, grad))
    if wanted[1]:
        yield Gemm(groups, n, k, m, moved(grad, x, weight), reordered(x, grad))


def depthwise(weight, groups):
    """Return whether each group has one channel."""
    return weight.shape[1] == 1 < groups


def _sizes(x, weight, out, groups, mirrored):
    """Return m, n, k of the forward product; a transposed convolution is another's backward one."""
    few, many = (x, out) if mirrored else (out, x)
    return few.shape[0] * prod(few.shape[2:]), few.shape[1] // groups, many.shape[1] // groups * prod(weight.shape[2:])


_GEMM_RULES = {
    "mm": lambda args, out: _matrices(args[0], args[1], out),
    "bmm": lambda args, out: _matrices(args[0], args[1], out),
    "addmm": lambda args, out: _matrices(args[1], args[2], out, args[0]),
    "baddbmm": lambda args, out: _matrices(args[1], args[2], out, args[0]),
    "_scaled_mm": lambda args, out: _matrices(args[0], args[1], out),  # of 8-bit floats
    "_int_mm": lambda args, out: _matrices(args[0], args[1], out),
    "convolution": _convolution,
    "convolution_backward": _convolution_backward,
}
