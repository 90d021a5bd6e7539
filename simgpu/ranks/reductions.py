"""What a reduction makes of the ranks' tensors: one rank's after the other's, in the tensors' own type."""

import torch
from torch.distributed import ReduceOp

_FOLDS = {
    ReduceOp.SUM: torch.add,
    ReduceOp.AVG: torch.add,
    ReduceOp.PREMUL_SUM: torch.add,
    ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum,
    ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and,
    ReduceOp.BOR: torch.bitwise_or,
    ReduceOp.BXOR: torch.bitwise_xor,
}
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_ORDERED = (ReduceOp.MIN, ReduceOp.MAX)
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def name(op):
    """Return the name of a reduction, ``sum`` for ``ReduceOp.SUM``."""
    return kind(op).name.lower()


def check(op, dtype):
    """Raise ValueError where a reduction is not defined for a type, with NCCL's limits."""
    asked = kind(op)
    if asked not in _FOLDS:
        raise ValueError(f"expected a reduction such as ReduceOp.SUM, got {op}")
    if dtype.itemsize == 1 and dtype.is_floating_point:
        raise ValueError(f"expected a type of 16 bits or more to reduce, got {dtype}: convert it first")
    if asked in _BITS and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"expected integers for the bits of ReduceOp.{asked.name}, got {dtype}")
    if asked == ReduceOp.AVG and (dtype == torch.bool or dtype in _SIGNED):
        raise ValueError(f"expected floating-point numbers or signed integers for ReduceOp.AVG, got {dtype}")


def combine(ops, tensors):
    """Return a new tensor: the reduction of several, from the first to the last.

    Args:
        ops: What each rank asks for; only the factors of PREMUL_SUM may differ.
        tensors: One of each rank, all of one shape and type.
    """
    total = begin(ops[0], tensors[0], len(tensors))
    for op, tensor in zip(ops[1:], tensors[1:]):
        fold(op, total, begin(op, tensor, len(tensors), copy=False))
    return end(ops[0], total, tensors[0].dtype, len(tensors))


def begin(op, tensor, count, copy=True):
    """Return what a rank's tensor brings into the reduction of `count` ranks, a new one where `copy` is asked for.

    A mean of floating-point numbers is a sum of shares, as NCCL has it (ncclDevPreMulSum in src/enqueue.cc): in float16
    it does not overflow. Of whole numbers it is the sum, divided at the end.
    Unsigned integers come as signed ones of the same bits; where their order counts, it is moved by half the range.
    """
    if tensor.dtype in _SIGNED:
        tensor = tensor.view(_SIGNED[tensor.dtype])
        return tensor ^ torch.iinfo(tensor.dtype).min if kind(op) in _ORDERED else tensor.clone()
    if kind(op) == ReduceOp.AVG and (tensor.is_floating_point() or tensor.is_complex()):
        return tensor * (1 / count)
    if kind(op) == ReduceOp.PREMUL_SUM:
        return (tensor * _factor(op)).to(tensor.dtype)
    return tensor.clone() if copy else tensor


def fold(op, total, tensor):
    """Combine two tensors in the first one."""
    _FOLDS[kind(op)](total, tensor, out=total)


def end(op, total, dtype, count):
    """Return the result in type `dtype`, of a reduction over `count` ranks."""
    if dtype in _SIGNED:
        return (total ^ torch.iinfo(total.dtype).min if kind(op) in _ORDERED else total).view(dtype)
    if kind(op) == ReduceOp.AVG and not (total.is_floating_point() or total.is_complex()):
        return torch.div(total, count, rounding_mode="trunc")
    return total


def _factor(op):
    factor = op.__getstate__()[1]
    return getattr(factor, "_real", factor)


def kind(op):
    """Return which reduction an op is, ``ReduceOp.SUM`` for one: a PREMUL_SUM carries its factor too."""
    return getattr(op, "op", op)
