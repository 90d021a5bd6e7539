"""What one PyTorch operation amounts to on a GPU: its kind, its arithmetic and its traffic in memory.

Matrix multiplications and convolutions come with their sizes (`gemms.gemms_of`); attention's arithmetic comes from the
formulas of `torch.utils.flop_counter`; other operations are taken to move bytes only. Bytes are all tensors read and
written, each once, as if caches kept nothing between operations.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple, Protocol

import torch
from torch.fx.operator_schemas import get_signature_for_torch_op
from torch.utils.flop_counter import flop_registry

from simgpu.accounting.gemms import gemms_of, moved
from simgpu.hardware.gemm import Gemm


class Operation(Protocol):
    """What is asked of an operation of torch: an overload, as ``torch.ops.aten.mm.default``."""

    __name__: str
    namespace: str
    tags: list[torch.Tag]
    is_view: bool


class OpWork(NamedTuple):
    """What one operation computes and moves.

    Attributes:
        name: The operation's name, as in ``torch.ops.aten``.
        kind: One of `op_costs.ARITHMETIC` or `op_costs.MEMORY`.
        flops: Multiplications and additions, counted apart.
        nbytes: Bytes read and written, each tensor once.
        dtype: The operands' type, or "tf32" where tensor cores may round float32.
        gemms: The matrix multiplications that it consists of.
    """

    name: str
    kind: str
    flops: int
    nbytes: int
    dtype: str
    gemms: tuple[Gemm, ...]


# The CPU's attention has the CUDA kernel's arithmetic, and the counter knows only the latter.
_aten = torch.ops.aten
_TWINS = {
    _aten._scaled_dot_product_flash_attention_for_cpu: _aten._scaled_dot_product_flash_attention,
    _aten._scaled_dot_product_flash_attention_for_cpu_backward: _aten._scaled_dot_product_flash_attention_backward,
}
_ATTENTION = "scaled_dot_product"
_REDUCTIONS = ("sum", "mean", "norm", "softmax", "pool", "max", "min", "loss", "var", "std", "prod", "sort", "topk")
_GATHERS = ("embedding", "index_select", "gather", "index", "take")
_FILLS = ("fill_", "zero_", "normal_", "uniform_", "bernoulli_", "random_", "exponential_", "_like")
# Statistics over more than a row come before the first result, in a kernel of their own: two passes over the input. The
# gradients of a row's norm are one kernel, those of its weights another, which reads the two inputs again (PyTorch's
# aten/src/ATen/native/cuda: Normalization.cu, group_norm_kernel.cu, layer_norm_kernel.cu; Apex likewise).
_TWICE = ("native_batch_norm", "native_group_norm")
_OF_WEIGHTS = ("layer_norm_backward", "rms_norm_backward")
# Shape, type and storage change hands, but no kernel runs. Views are found from the operation's own declaration.
_FREE = (
    "empty",
    "detach",
    "lift",
    "unsafe_view",
    "resize_",
    "set_",
    "local_scalar_dense",
    "record_",
    "is_",
    "sym_",
    "efficientzerotensor",
    "new_empty",
    "alias",
)
_PRODUCTS = ("mm", "bmm", "addmm", "baddbmm")
_precision = torch.get_float32_matmul_precision
_starts: dict[Any, tuple] = {}  # per operation, whether it is free, and its `cost_switches`


def signature(func, args, kwargs, out):
    """Return a key that is the same for calls that cost the same; None for an operation that costs the device nothing.

    The shapes and types of all tensors, results too, decide the cost. Of plain numbers only True takes part, as in
    causal attention: a convolution's stride shows in its result's shape, and a learning rate that changes at every call
    must not make a key of its own. For products the switches of TF32 count, for convolutions the order in memory.

    Args:
        func, args, kwargs, out: As `op_work` takes them.
    """
    try:
        free, more = _starts[func]
    except KeyError:
        free, more = _starts[func] = _free(func), cost_switches(func)
    if free:
        return None
    key = [func, *more(args)] if more else [func]
    _collect(args, key)
    if kwargs:
        _collect(kwargs.values(), key)
    _collect(out if isinstance(out, (tuple, list)) else (out,), key)
    return tuple(key)


def op_work(func: Operation, args: Sequence[Any], kwargs: dict[str, Any], out: Any) -> OpWork | None:
    """Return what one call of an operation computes and moves; None for one that costs the device nothing.

    Args:
        func: The operation, as ``torch.ops.aten.mm.default``.
        args: The call's arguments; tensors may be on the meta device.
        kwargs: Its keyword arguments.
        out: What it returned, or, where it returns nothing, the tensors that it wrote.
    """
    return None if signature(func, args, kwargs, out) is None else measure(func, args, kwargs, out)


def name_of(func):
    """Return an operation's name without its overload."""
    return func.__name__.partition(".")[0]


def measure(func, args, kwargs, out):
    """Return the `OpWork` of one call of an operation that costs the device something.

    Args:
        func, args, kwargs, out: As `op_work` takes them.
    """
    name = name_of(func)
    packet = getattr(getattr(torch.ops, func.namespace), name)
    gemms = gemms_of(name, args, out)
    read, written = read_and_written(args, kwargs, out)
    floats = (t.dtype for t in (*read, *written) if t.dtype.is_floating_point)
    dtype = read[0].dtype if gemms else next(floats, torch.int64)
    kind = _kind(name, gemms)
    if kind == "attention":
        formula = flop_registry[_TWINS.get(packet, packet)]
        flops = formula(*args, **kwargs, out_val=out) // (2 if _causal(func, args, kwargs) else 1)
    else:
        flops = sum(2 * p.batch * p.m * p.n * p.k for p in gemms)
    traffic = _traffic("eval" if name == "native_batch_norm" and not args[5] else name, read, written)
    return OpWork(name.replace("_for_cpu", ""), kind, flops, traffic, _type(dtype, kind), gemms)


def read_and_written(args, kwargs, out):
    """Return the tensors that a call reads and those that it writes, two lists; what ``out=`` names is only written."""
    written = _tensors(out)
    named = [tensor for tensor in _tensors(kwargs) if not any(tensor is target for target in written)]
    return _tensors(args) + named, written


def cost_switches(func):
    """Return what of a call decides an operation's cost beside shapes and types: a function of its arguments, or None.

    For products these are the switches of TF32, for convolutions too, and whether the pictures' channels lie last.
    """
    name = name_of(func)
    if "convolution" in name:
        return lambda args: [
            torch.backends.cudnn.allow_tf32,
            *(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last) for t in args[:2]),
        ]
    if name in _PRODUCTS or _ATTENTION in name:
        return lambda args: [_precision()]
    return None


def _free(func):
    name = name_of(func).lstrip("_")
    return func.is_view or torch.Tag.inplace_view in func.tags or name.startswith(_FREE)


def _collect(values, key):
    for value in values:
        if isinstance(value, torch.Tensor):
            key.append(value.shape)
            key.append(value.dtype)
        elif value is None or value is True:  # a gradient that was not asked for is arithmetic that was not done
            key.append(value)
        elif isinstance(value, (list, tuple)) and value and not isinstance(value[0], (int, float)):
            _collect(value, key)


def _kind(name, gemms):
    if gemms:
        return "conv" if "convolution" in name else "gemm"
    if _ATTENTION in name:
        return "attention"
    if any(word in name for word in _GATHERS):
        return "gather"
    return "reduction" if any(word in name for word in _REDUCTIONS) else "pointwise"


def _type(dtype, kind):
    """Return the type's name; "tf32" for float32 where PyTorch's switches let the tensor cores round it."""
    allowed = {"conv": torch.backends.cudnn.allow_tf32, "gemm": _precision() != "highest"}
    allowed["attention"] = allowed["gemm"]
    return "tf32" if dtype == torch.float32 and allowed.get(kind) else str(dtype).removeprefix("torch.")


def _causal(func, args, kwargs):
    (signature,) = get_signature_for_torch_op(func)
    return (dict(zip(signature.parameters, args)) | kwargs).get("is_causal", False)


def _traffic(name, read, written):
    result = moved(*written)
    if name.endswith(_FILLS) or name.startswith("new_"):  # of a tensor they take the shape alone
        return result
    if name in ("copy_", "_foreach_copy_"):  # read the sources only; what they write over does not matter
        return result + moved(*read[len(read) // 2 :])
    if name == "all_gather_copy_in":  # FSDP2's: a rank's shards go to their place of the buffer, which it returns whole
        return 2 * moved(written[0])
    if name.lstrip("_").startswith(_TWICE):
        return result + 2 * moved(*read)
    if name.endswith(_OF_WEIGHTS) and len(written) > 1:
        return result + moved(*read, *read[:2])
    if name.startswith("nll_loss"):  # one score of each row
        return result + moved(*(t for t in read if not t.dtype.is_floating_point))
    if name in ("embedding", "index_select", "gather", "index"):  # reads the chosen rows, not the table
        return 2 * result + moved(*(t for t in read if not t.dtype.is_floating_point))
    return result + moved(*read)


def _tensors(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, (list, tuple)):
        return []
    return [tensor for item in value for tensor in _tensors(item)]
