"""What one PyTorch operation amounts to on a GPU: its kind, its arithmetic and its traffic in memory.

Arithmetic comes from the formulas of `torch.utils.flop_counter`, rounded up to whole tiles of the result; operations
without a formula are taken to move bytes only.
Bytes are all tensors read and written, each once, as if caches kept nothing between operations.
"""

from collections import namedtuple

import torch
from torch.utils.flop_counter import flop_registry

from d2lmini.hardware.costs import padded

Work = namedtuple("Work", "name kind flops nbytes dtype")

# The CPU's attention has the CUDA kernel's arithmetic, and the counter knows only the latter.
_aten = torch.ops.aten
_TWINS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}
_CONV = ("convolution", "conv2d")
_REDUCTIONS = ("sum", "mean", "norm", "softmax", "pool", "max", "min", "loss", "var", "std", "prod", "sort", "topk")
_GATHERS = ("embedding", "index_select", "gather", "index", "take", "nll_loss")
_FILLS = ("fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_")
# Shape, type and storage change hands, but no kernel runs. Views are found from the operation's own declaration.
_FREE = ("empty", "detach", "lift", "unsafe_view", "resize_", "set_", "local_scalar_dense", "record_stream", "is_",
         "sym_", "efficientzerotensor", "new_empty", "alias", "record_function")  # fmt: skip
_frees = {}  # per operation, whether it is free


def signature(func, args, kwargs, out):
    """Return a key, the same for calls that cost the same; None for an operation that costs the device nothing.

    The shapes and types of all tensors, results too, decide the cost. Plain numbers take no part: a convolution's
    stride shows in its result's shape, and a learning rate that changes at every call must not make a key of its own.
    """
    try:
        free = _frees[func]
    except KeyError:
        free = _frees[func] = _free(func)
    if free:
        return None
    key = [func]
    _collect(args, key)
    if kwargs:
        _collect(kwargs.values(), key)
    _collect(out if isinstance(out, (tuple, list)) else (out,), key)
    return tuple(key)


def work(func, args, kwargs, out):
    """Return the `Work` of one call, or None for an operation that costs the device nothing: see `measure`."""
    return None if signature(func, args, kwargs, out) is None else measure(func, args, kwargs, out)


def measure(func, args, kwargs, out):
    """Return the `Work` of one call: `func` is an operator overload, `args`, `kwargs` and `out` its call's values."""
    packet = func._overloadpacket
    name = packet.__name__
    read, written = _tensors((args, kwargs)), _tensors(out)
    formula = flop_registry.get(_TWINS.get(packet, packet))
    flops = _arithmetic(formula, name, args, kwargs, out) if formula else 0
    dtype = next((t.dtype for t in (*read, *written) if t.dtype.is_floating_point), torch.int64)
    return Work(name, _kind(name, formula), flops, _traffic(name, read, written), str(dtype).removeprefix("torch."))


def _collect(values, key):
    for value in values:
        if isinstance(value, torch.Tensor):
            key.append(value.shape)
            key.append(value.dtype)
        elif value is None:  # a gradient that was not asked for is arithmetic that was not done
            key.append(None)
        elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
            _collect(value, key)


def _free(func):
    name = func._overloadpacket.__name__.lstrip("_")
    return func.is_view or torch.Tag.inplace_view in func.tags or name.startswith(_FREE)


def _kind(name, formula):
    if formula is not None:
        return "conv" if any(word in name for word in _CONV) else "gemm"
    if any(word in name for word in _GATHERS):
        return "gather"
    return "reduction" if any(word in name for word in _REDUCTIONS) else "pointwise"


def _arithmetic(formula, name, args, kwargs, out):
    flops = formula(*args, **kwargs, out_val=out)
    if name == "convolution_backward":  # results: the input's gradient and the weight's, of equal arithmetic
        results = [side for side, wanted in zip((1, 0), args[10]) if wanted]
        weight = args[2].shape
        return round(flops * sum(padded(weight[side]) for side in results) / len(results)) if results else 0
    if not isinstance(out, torch.Tensor) or out.dim() < 2:
        return flops
    return round(flops * (padded(out.shape[1]) if name == "convolution" else padded(*out.shape[-2:])))


def _traffic(name, read, written):
    result = sum(_nbytes(t) for t in written)
    if name.endswith(_FILLS):
        return result
    if name == "copy_":  # reads the source only; what it writes over does not matter
        return result + _nbytes(read[1])
    if "batch_norm" in name:  # the statistics of a whole batch come before its first result: two passes over the input
        return result + 2 * sum(_nbytes(t) for t in read)
    if name in ("embedding", "index_select", "gather", "index"):  # reads the chosen rows, not the table
        return 2 * result + sum(_nbytes(t) for t in read if not t.dtype.is_floating_point)
    return result + sum(_nbytes(t) for t in read)


def _nbytes(tensor):
    return tensor.numel() * tensor.element_size()


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]
