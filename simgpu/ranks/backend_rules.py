"""What NCCL and gloo refuse: checked for groups that a program made under one of these names.

A group of another name takes whatever can be computed, and so does the default group of `simgpu.spawn`. The rules are
those of torch's ProcessGroupNCCL and ProcessGroupGloo, with their words; a group named for several devices,
"cpu:gloo,cuda:nccl", goes by each one's.
"""

import torch
from torch.distributed import ReduceOp

from simgpu.device.state import state
from simgpu.ranks import reductions
from simgpu.ranks.tensor_lists import flat

_COMMON = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_COMMON |= {torch.int8, torch.uint8, torch.int32, torch.int64, torch.bool}
_COMPLEX = {torch.complex64, torch.complex128}
_FLOAT8 = {torch.float8_e5m2, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
_SCALED = {torch.float16, torch.bfloat16, torch.float32, torch.float64}
_BITS = (ReduceOp.BAND, ReduceOp.BOR, ReduceOp.BXOR)
_VIEWED_AS_REAL = ("all_reduce", "broadcast", "reduce")  # complex tensors, by ProcessGroupNCCL itself
_COPIED = {"all_gather": "received", "reduce_scatter": "sent"}  # lists that it copies, whatever their strides


def backends(name):
    """Return {device type: backend} of a group's name as a program gives it; None where nothing is refused."""
    parts = str(name or "").lower().split(",")
    if parts in (["nccl"], ["undefined"]):  # which is torch's choice for the accelerator that it finds
        return {"sim": "nccl"}
    if parts == ["gloo"]:
        return {"sim": "gloo", "cpu": "gloo"}
    if not all(":" in part for part in parts):
        return None
    pairs = dict(part.split(":", 1) for part in parts)
    return {("sim" if device == "cuda" else device): backend for device, backend in pairs.items()}


def check(found, call, device):
    """Return the backend that takes a call's tensors.

    Args:
        found: What `backends` returned.
        call: The `Call`.
        device: The type of the tensors' device, "sim" or "cpu".

    It raises torch's error where the backend refuses them.
    """
    if not call.tensors():  # of a barrier
        return found.get(device)
    backend = found.get(device)
    if backend is None:
        raise RuntimeError(f"{call.name}: No backend type associated with device type {shown(device)}")
    if backend == "nccl":
        _check_nccl(call)
    elif backend == "gloo":
        _check_gloo(call)
    return backend


def shown(device):
    """Return a device type as the program knows it: cuda for sim inside `simgpu.as_cuda`."""
    return device.replace("sim", "cuda") if state.as_cuda else device


def _check_nccl(call):
    op = None if call.op is None else reductions.kind(call.op)
    if None in getattr(call, "ends", ()):
        raise NotImplementedError("ProcessGroupNCCL does not support recvAnysource: name the rank that sends")
    for tensor in call.tensors():
        _check_nccl_type(call, tensor.dtype, op)
    for tensor in _read_or_written(call):
        if not tensor.is_contiguous(memory_format=_format(tensor)):
            raise ValueError(
                f"{call.name}: Tensors must be contiguous, got strides {tensor.stride()}: call .contiguous() first"
            )
    if call.name in ("gather", "scatter"):
        _check_equal(call)
    if len({tensor.dtype for tensor in flat(call.sent) + flat(call.received)}) > 1:
        raise TypeError(f"{call.name}: Tensors must have identical type, got {_types(call)}")


def _check_nccl_type(call, dtype, op):
    name = str(dtype).removeprefix("torch.")
    if op in _BITS:
        raise ValueError(f"Cannot use ReduceOp.{op.name} with NCCL")
    if dtype in _COMPLEX and call.name in _VIEWED_AS_REAL:
        if op in (ReduceOp.PRODUCT, ReduceOp.MIN, ReduceOp.MAX):
            raise ValueError(f"{call.name} does not support ReduceOp.{op.name} on complex tensors")
        return
    if op is not None and dtype in _FLOAT8:
        raise RuntimeError("Float8 dtypes are not currently supported for NCCL reductions")
    if dtype not in _COMMON | _FLOAT8:
        raise TypeError(f"{call.name}: Input tensor data type is not supported for NCCL process group: {name}")
    if op == ReduceOp.AVG and dtype == torch.bool:
        raise TypeError("Cannot use ReduceOp.AVG with boolean inputs")
    if op == ReduceOp.PREMUL_SUM and dtype not in _SCALED:
        raise TypeError(f"PreMulSum Data type must be half, float, or double, got {name}")


def _check_gloo(call):
    op = None if call.op is None else reductions.kind(call.op)
    if op == ReduceOp.PREMUL_SUM:
        raise RuntimeError("Cannot use ReduceOp.PREMUL_SUM with Gloo")
    for tensor in call.tensors():
        if tensor.dtype not in _COMMON | _COMPLEX:
            raise RuntimeError(f"{call.name}: Invalid scalar type for Gloo: {tensor.dtype}")
        exact = not (tensor.is_floating_point() or tensor.is_complex())
        if op == ReduceOp.AVG and exact:
            raise RuntimeError(f"{call.name}: Gloo cannot use ReduceOp.AVG with {tensor.dtype}")
        if op in _BITS and not exact:
            raise RuntimeError(f"Cannot use ReduceOp.{op.name} with non-integral dtype")
        if call.name == "all_to_all" and call.single and not tensor.is_contiguous():
            raise ValueError("all_to_all: Tensors must be contiguous")


def _read_or_written(call):
    """Return the tensors that NCCL itself reads or writes."""
    copied = None if call.single else _COPIED.get(call.name)
    if copied is None:
        return call.tensors()
    return flat(call.sent if copied == "received" else call.received)


def _format(tensor):
    """Return the order of dimensions that torch suggests: images may be channels last."""
    if tensor.dim() == 4 and tensor.is_contiguous(memory_format=torch.channels_last):
        return torch.channels_last
    return torch.contiguous_format


def _check_equal(call):
    """Raise ValueError unless a root's list has the shape and type of its own tensor."""
    mine = flat(call.received if call.name == "scatter" else call.sent)
    for other in flat(call.sent if call.name == "scatter" else call.received):
        if other.shape != mine[0].shape or other.dtype != mine[0].dtype:
            raise ValueError(
                f"ProcessGroupNCCL::{call.name}: invalid tensor size, expected {list(mine[0].shape)} as all have, "
                f"got {list(other.shape)}"
            )


def _types(call):
    return ", ".join(sorted({str(tensor.dtype).removeprefix("torch.") for tensor in call.tensors()}))
