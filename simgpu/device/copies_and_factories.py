"""The operations that a plan cannot run: copies between devices, tensors from nothing, numbers for the host, storages.

``_kernels`` are what torch calls for a device without a tensor to dispatch on; the others are called with a shell.
"""

import math

import torch

from simgpu.device.dispatch import follow, handles
from simgpu.device.random import draw
from simgpu.device.shapes import made
from simgpu.device.state import meant, state
from simgpu.device.storage import is_pinned
from simgpu.device.tensor import SimTensor, numbers, own, wrap

aten = torch.ops.aten
_libraries = []


def register():
    """Install the kernels that make tensors on a device; only once a process."""
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in _kernels.items():
        library.impl(name, kernel)
    autograd = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    autograd.impl("ctc_loss.Tensor", _ctc_loss)
    _libraries.extend([library, autograd])


# -- tensors from nothing --------------------------------------------------------------------------------------------


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    def make():
        return torch.empty(size, dtype=dtype, layout=layout, device=state.home, memory_format=memory_format)

    return _new(make, _bytes(size, dtype), device, pin_memory)


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    def make():
        return torch.empty_strided(size, stride, dtype=dtype, layout=layout, device=state.home)

    return _new(make, _bytes(size, dtype), device, pin_memory)


def _efficientzerotensor(size, *, dtype=None, layout=None, device=None, pin_memory=None):
    """Autograd's zeros, which nobody writes to: one zero, seen from everywhere."""
    return _new(lambda: torch.zeros((), dtype=dtype, device=state.home).expand(size), 0, device, pin_memory)


def _triangle(operation):
    def kernel(row, col, offset=0, *, dtype=torch.int64, layout=None, device=None, pin_memory=None):
        nbytes = operation(row, col, offset, dtype=dtype, device="meta").nbytes
        return _new(lambda: operation(row, col, offset, dtype=dtype, device=state.home), nbytes, device, pin_memory)

    return kernel


def _new(make, nbytes, device, pin_memory):
    """Return what `make` makes, on `device`, after a look whether `nbytes` more fit there."""
    if pin_memory:
        raise RuntimeError(f"Only dense CPU tensors can be pinned, expected no pin_memory for a tensor on {device}")
    index = state.index(device)
    if state.counting:
        state.gpus[index].memory.check(nbytes)
    return wrap(make(), index)


def _bytes(size, dtype):
    return math.prod(size) * (dtype or torch.get_default_dtype()).itemsize


def _places(args, kwargs):
    """Return the device index of the first shell and that of the result: None for a place that is not simulated.

    Third, the torch.device to make the real result on.
    """
    source = next((a._index for a in args if type(a) is SimTensor), None)
    device = kwargs.get("device")
    if device is None:
        return source, source, state.home
    return (source, state.index(device), state.home) if device.type == "sim" else (source, None, device)


def new_like(func, args, kwargs):
    """Run ``zeros_like``, ``new_empty`` and their kin, which may make their result on another device."""
    _, target, device = _places(args, kwargs)
    kwargs = {**kwargs, "device": device}
    if target is not None:
        if kwargs.pop("pin_memory", None):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        size = args[1] if func._schema.name.startswith("aten::new_") else args[0].shape
        if state.counting:
            dtype = kwargs.get("dtype") or next(a for a in args if type(a) is SimTensor).dtype
            state.gpus[target].memory.check(_bytes(size, dtype))
    reals = [a._real if type(a) is SimTensor else a for a in args]
    random = torch.Tag.nondeterministic_seeded in func.tags
    out = draw(func, func, reals, kwargs, target) if random and target is not None else made(func, reals, kwargs)
    if state.clock is not None and target is not None:
        state.clock.operation(target, func, reals, kwargs, out)
    return out if target is None else wrap(out, target)


# -- copies ----------------------------------------------------------------------------------------------------------


@handles(aten._to_copy.default)
def to_copy(func, args, kwargs):
    """``x.to(...)`` of a tensor on a simulated GPU, when something changes."""
    x = args[0]
    index, target, device = _places(args, kwargs)
    kwargs = {**kwargs, "device": device}
    if kwargs.get("pin_memory") and target is not None:
        raise RuntimeError("Only dense CPU tensors can be pinned")
    if target is not None and state.counting:
        state.gpus[target].memory.check(x.numel() * (kwargs.get("dtype") or x.dtype).itemsize)
    real = x._real if target is not None and type(x) is SimTensor else numbers(x)
    out = func(real, **kwargs)
    _report(func, index, target, (real,), out, real, kwargs.get("non_blocking", False))
    return out if target is None else wrap(out, target)


@handles(aten.copy_.default)
def copy_(func, args, kwargs):
    """``dst.copy_(src)`` with either or both on simulated GPUs."""
    dst, src, *rest = args
    src = src if isinstance(src, torch.Tensor) else torch.tensor(src)
    places = [t._index if type(t) is SimTensor else None for t in (src, dst)]
    real = tuple(t._real if type(t) is SimTensor else t for t in (dst, src))
    if type(dst) is SimTensor or not state.told_nothing:
        real[0].copy_(real[1] if type(dst) is SimTensor else numbers(src))
    _report(func, *places, real, real[0], real[1], kwargs.get("non_blocking", bool(rest and rest[0])))
    return dst


def _report(func, src, dst, args, out, moved, non_blocking):
    """Tell the clock of a copy: within a device it is an operation like any other."""
    clock = state.clock
    if clock is None:
        return
    if src == dst:
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
    """``x.item()``: one number travels to the host, which waits for it."""
    (x,) = args
    if state.clock is not None:
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
        if here is None and meant(source.device).type == "sim":
            raise NotImplementedError(
                f"expected no C++ code that reads a tensor's memory, as torch.jit.save does, got "
                f"one on {source.device}: use Tensor.cpu() or Module.cpu() first"
            )
        if here != getattr(x, "_index", None):
            raise RuntimeError(
                f'Attempted to set the storage of a tensor on device "{x.device}" to a storage on different device '
                f'"{source.device}".  This is no longer allowed; the devices must match.'
            )
    own(x)
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
        state.gpus[x._index].memory.check(max(0, needed - storage.nbytes()))
    own(x)
    func(x._real, size, **kwargs)
    follow(x)
    return x


FROM_NOTHING = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_efficientzerotensor": _efficientzerotensor,
    "tril_indices": _triangle(torch.tril_indices),
    "triu_indices": _triangle(torch.triu_indices),
}
_kernels = FROM_NOTHING | {
    "_copy_from": _copy_from,
    "_copy_from_and_resize": _copy_from_and_resize,
    "_to_copy": _no_tensor_dispatch_to_copy,
    "_local_scalar_dense": _no_tensor_dispatch_item,
}

for _packet in (
    "empty_like",
    "zeros_like",
    "ones_like",
    "full_like",
    "rand_like",
    "randn_like",
    "randint_like",
    "new_empty",
    "new_empty_strided",
    "new_zeros",
    "new_ones",
    "new_full",
):
    for _overload in getattr(aten, _packet).overloads():
        if "out" not in _overload:
            handles(getattr(getattr(aten, _packet), _overload))(new_like)
