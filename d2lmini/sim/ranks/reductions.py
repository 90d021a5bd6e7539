"""What a reduction makes of the ranks' tensors: one rank's after the other's, in the tensors' own type."""

import torch
from torch.distributed import ReduceOp

_FOLDS = {
    ReduceOp.SUM: torch.add, ReduceOp.AVG: torch.add, ReduceOp.PREMUL_SUM: torch.add, ReduceOp.PRODUCT: torch.mul,
    ReduceOp.MIN: torch.minimum, ReduceOp.MAX: torch.maximum,
    ReduceOp.BAND: torch.bitwise_and, ReduceOp.BOR: torch.bitwise_or, ReduceOp.BXOR: torch.bitwise_xor,
}  # fmt: skip
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_SIGNED = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}


def name(op):
    """Return the name of a reduction, ``sum`` for ``ReduceOp.SUM``."""
    return _kind(op).name.lower()


def check(op, dtype):
    """Raise ValueError where a reduction is not defined for a type, with NCCL's limits."""
    kind = _kind(op)
    if kind not in _FOLDS:
        raise ValueError(f"expected a reduction such as ReduceOp.SUM, got {op}")
    if dtype.itemsize == 1 and dtype.is_floating_point:
        raise ValueError(f"expected a type of 16 bits or more to reduce, got {dtype}: convert it first")
    if kind in _BITS and (dtype.is_floating_point or dtype.is_complex):
        raise ValueError(f"expected integers for the bits of ReduceOp.{kind.name}, got {dtype}")
    if kind == ReduceOp.AVG and (dtype == torch.bool or dtype in _SIGNED):
        raise ValueError(f"expected floating-point numbers or signed integers for ReduceOp.AVG, got {dtype}")


def combine(ops, tensors):
    """Return a new tensor: the reduction of `tensors`, all of one shape and type, from the first to the last.

    ops: what each rank asks for; only the factors of PREMUL_SUM may differ.
    """
    kind = _kind(ops[0])
    if tensors[0].dtype in _SIGNED:
        return _combine_unsigned(ops, tensors)
    if kind == ReduceOp.PREMUL_SUM:
        tensors = [(tensor * _factor(op)).to(tensor.dtype) for op, tensor in zip(ops, tensors)]
    fold, total = _FOLDS[kind], tensors[0].clone()
    for tensor in tensors[1:]:
        fold(total, tensor, out=total)
    if kind == ReduceOp.AVG:
        exact = total.is_floating_point() or total.is_complex()
        total = torch.div(total, len(tensors), rounding_mode=None if exact else "trunc")
    return total


def _combine_unsigned(ops, tensors):
    """Reduce unsigned integers as signed ones of the same bits: where order counts, it is moved by half the range."""
    dtype = tensors[0].dtype
    half = torch.iinfo(_SIGNED[dtype]).min if _kind(ops[0]) in (ReduceOp.MIN, ReduceOp.MAX) else 0
    return (combine(ops, [tensor.view(_SIGNED[dtype]) ^ half for tensor in tensors]) ^ half).view(dtype)


def _factor(op):
    factor = op.__getstate__()[1]
    return getattr(factor, "_real", factor)


def _kind(op):
    return op.op if isinstance(op, ReduceOp) else op
