"""Copies between devices, numbers that the host reads, and tensors that change their storage.

`_KERNELS` are what torch calls for a device without a tensor to dispatch on; the others are called with a wrapper.
"""

import math
from functools import cache

import torch

from simgpu.device.dispatch import Plan, follow, handles
from simgpu.device.factories import places
from simgpu.device.state import state, to_sim
from simgpu.device.tensor import SimTensor, is_pinned, numbers, unshare, wrap

aten = torch.ops.aten
_libraries = []


def register():
    """Install the kernels; only once a process."""
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in _KERNELS.items():
        library.impl(name, kernel)
    autograd = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    autograd.impl("ctc_loss.Tensor", _ctc_loss)
    _libraries.extend([library, autograd])


# -- copies ----------------------------------------------------------------------------------------------------------


@handles(aten._to_copy.default)
def to_copy(func, args, kwargs):
    """``x.to(...)`` of a tensor on a simulated GPU, when something changes."""
    x = args[0]
    index, target, device = places(args, kwargs)
    kwargs = {**kwargs, "device": device}
    if kwargs.get("pin_memory") and target is not None:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if target is not None and state.counting:
        state.gpus[target].allocator.check(x.numel() * (kwargs.get("dtype") or x.dtype).itemsize)
    real = x._real if type(x) is SimTensor else x
    if target is None and device.type == "meta":  # its shape alone: nothing is read and nothing crosses a link
        return func(real, **kwargs)
    if target is None and real.is_meta and state.stand_in:
        out = state.stand_in(real, kwargs.get("dtype"))
    else:
        out = func(real if target is not None else numbers(x), **kwargs)
    non_blocking = kwargs.get("non_blocking", False)
    if target is None and device.type == "cpu" and non_blocking:
        # torch takes pinned memory for it: `pin_out` in native/TensorConversions.cpp
        out.untyped_storage()._sim_pinned = True
    _report(func, index, target, (real,), out, real, non_blocking)
    return out if target is None else wrap(out, target)


@handles(aten._foreach_copy_.default)
def foreach_copy_(func, args, kwargs):
    """Copy lists of tensors: place by place where they are on several devices, as CUDA does."""
    targets, sources, *rest = args
    if len({getattr(tensor, "_index", None) for tensor in (*targets, *sources)}) == 1:
        return _on_one_device(func).run(func, args, kwargs)
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source, *rest, **kwargs)
    return None


_on_one_device = cache(Plan)


@handles(aten.copy_.default)
def copy_(func, args, kwargs):
    """``dst.copy_(src)`` with either or both on simulated GPUs."""
    dst, src, *rest = args
    src = src if isinstance(src, torch.Tensor) else torch.tensor(src)
    places = [t._index if type(t) is SimTensor else None for t in (src, dst)]
    real = tuple(t._real if type(t) is SimTensor else t for t in (dst, src))
    if type(dst) is SimTensor or not state.keep_host_values:
        real[0].copy_(real[1] if type(dst) is SimTensor else numbers(src))
    _report(func, *places, real, real[0], real[1], kwargs.get("non_blocking", bool(rest and rest[0])))
    return dst


def _report(func, src, dst, args, out, moved, non_blocking):
    """Tell the clock of a copy: within a device it is an operation like any other."""
    clock = state.clock
    if clock is None:
        return
    if src == dst:
        if state.before_copy:
            state.before_copy(moved)
        clock.operation(src, func, args, {}, out)
    else:
        host = out if dst is None else moved
        pinned = None in (src, dst) and is_pinned(host)
        clock.copy(src, dst, moved.numel() * moved.element_size(), pinned, not non_blocking)


def _copy_from(src, dst, non_blocking=False):
    return copy_(aten.copy_.default, (dst, src), {"non_blocking": non_blocking})


def _copy_from_and_resize(src, dst):
    return copy_(aten.copy_.default, (dst.resize_(src.shape), src), {})


def _no_tensor_dispatch_to_copy(x, **kwargs):
    return to_copy(aten._to_copy.default, (x,), kwargs)


def _no_tensor_dispatch_item(x):
    """Read a number inside ``torch.tensor([x, y])``."""
    return item(aten._local_scalar_dense.default, (x,), {})


# -- numbers for the host --------------------------------------------------------------------------------------------


@handles(aten._local_scalar_dense.default)
def item(func, args, kwargs):
    """``x.item()``: PyTorch's own part of a call, then one number travels to the host, which waits for it."""
    (x,) = args
    if state.clock is not None:
        state.clock.call(x._index, "item", 1)
        state.clock.copy(x._index, None, x.element_size(), False, True)
    return numbers(x).item()


def _ctc_loss(log_probs, targets, input_lengths, target_lengths, *options):
    """The loss for lengths in tensors, which may be the host's as on CUDA: they are read as numbers."""
    return aten.ctc_loss.IntList(log_probs, targets, input_lengths.tolist(), target_lengths.tolist(), *options)


@handles(aten.ctc_loss.Tensor)
def _ctc_loss_without_autograd(func, args, kwargs):
    return _ctc_loss(*args, **kwargs)


# -- storages --------------------------------------------------------------------------------------------------------


@handles(aten.set_.source_Storage, aten.set_.source_Storage_storage_offset, aten.set_.source_Tensor, aten.set_.default)
def set_(func, args, kwargs):
    """``x.set_(...)``: another storage on the same device."""
    x, *rest = args
    source = rest[0] if rest else None
    if isinstance(source, torch.Tensor):
        rest[0] = getattr(source, "_real", source)
    if source is not None:
        here = source._index if type(source) is SimTensor else getattr(source, "_sim", None)
        if here is None and to_sim(source.device).type == "sim":
            raise NotImplementedError(
                f"expected no C++ code that reads a tensor's memory, as torch.jit.save does, got "
                f"one on {source.device}: use Tensor.cpu() or Module.cpu() first"
            )
        if here != getattr(x, "_index", None):
            raise RuntimeError(
                f'Attempted to set the storage of a tensor on device "{x.device}" to a storage on different device '
                f'"{source.device}".  This is no longer allowed; the devices must match.'
            )
    unshare(x)
    func(x._real, *rest, **kwargs)
    follow(x)
    return x


@handles(aten.resize_.default)
def resize_(func, args, kwargs):
    """``x.resize_(...)``, checked before the host's memory is taken."""
    x, size = args
    if state.counting:
        storage = x._real.untyped_storage()
        needed = (x.storage_offset() + math.prod(size)) * x.element_size()
        state.gpus[x._index].allocator.check(max(0, needed - storage.nbytes()))
    unshare(x)
    func(x._real, size, **kwargs)
    follow(x)
    return x


_KERNELS = {
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_to_copy": _no_tensor_dispatch_to_copy,
    "_local_scalar_dense": _no_tensor_dispatch_item,
}
