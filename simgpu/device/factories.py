"""Tensors from nothing and in another's likeness: ``torch.empty(2, device="sim:1")``, ``torch.zeros_like(x)``.

`KERNELS` are what torch calls for a device without a tensor to dispatch on; `new_like` is called with a wrapper.
"""

import math

import torch

from simgpu.device.dispatch import handles
from simgpu.device.random import draw
from simgpu.device.result_shapes import made
from simgpu.device.state import state
from simgpu.device.tensor import SimTensor, wrap

aten = torch.ops.aten
_libraries = []


def register():
    """Install the kernels that make tensors on a device; only once a process."""
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    for name, kernel in KERNELS.items():
        library.impl(name, kernel)
    _libraries.append(library)


def _empty(size, *, dtype=None, layout=None, device=None, pin_memory=None, memory_format=None):
    def make():
        return torch.empty(size, dtype=dtype, layout=layout, device=state.real_device, memory_format=memory_format)

    return _new(make, _bytes(size, dtype), device, pin_memory)


def _empty_strided(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    def make():
        return torch.empty_strided(size, stride, dtype=dtype, layout=layout, device=state.real_device)

    return _new(make, _bytes(size, dtype), device, pin_memory)


def _efficientzerotensor(size, *, dtype=None, layout=None, device=None, pin_memory=None):
    """Autograd's zeros, which nobody writes to: one zero, seen from everywhere."""
    return _new(lambda: torch.zeros((), dtype=dtype, device=state.real_device).expand(size), 0, device, pin_memory)


def _triangle(operation):
    def kernel(row, col, offset=0, *, dtype=torch.int64, layout=None, device=None, pin_memory=None):
        nbytes = operation(row, col, offset, dtype=dtype, device="meta").nbytes
        return _new(
            lambda: operation(row, col, offset, dtype=dtype, device=state.real_device), nbytes, device, pin_memory
        )

    return kernel


def _new(make, nbytes, device, pin_memory):
    """Return what `make` makes, on `device`, after a look whether `nbytes` more fit there."""
    if pin_memory:
        raise RuntimeError(f"Only dense CPU tensors can be pinned, expected no pin_memory for a tensor on {device}")
    index = state.index(device)
    if state.counting:
        state.gpus[index].allocator.check(nbytes)
    return wrap(make(), index)


def _bytes(size, dtype):
    return math.prod(size) * (dtype or torch.get_default_dtype()).itemsize


def places(args, kwargs):
    """Return the device index of the first wrapper and that of the result: None for a place that is not simulated.

    Third, the torch.device to make the real result on.
    """
    source = next((a._index for a in args if type(a) is SimTensor), None)
    device = kwargs.get("device")
    if device is None:
        return source, source, state.real_device
    return (source, state.index(device), state.real_device) if device.type == "sim" else (source, None, device)


def new_like(func, args, kwargs):
    """Run ``zeros_like``, ``new_empty`` and their kin, which may make their result on another device."""
    _, target, device = places(args, kwargs)
    kwargs = {**kwargs, "device": device}
    if target is not None:
        if kwargs.pop("pin_memory", None):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        size = args[1] if func._schema.name.startswith("aten::new_") else args[0].shape
        if state.counting:
            dtype = kwargs.get("dtype") or next(a for a in args if type(a) is SimTensor).dtype
            state.gpus[target].allocator.check(_bytes(size, dtype))
    reals = [a._real if type(a) is SimTensor else a for a in args]
    random = torch.Tag.nondeterministic_seeded in func.tags
    out = draw(func, func, reals, kwargs, target) if random and target is not None else made(func, reals, kwargs)
    if state.clock is not None and target is not None:
        state.clock.operation(target, func, reals, kwargs, out)
    return out if target is None else wrap(out, target)


KERNELS = {
    "empty.memory_format": _empty,
    "empty_strided": _empty_strided,
    "_efficientzerotensor": _efficientzerotensor,
    "tril_indices": _triangle(torch.tril_indices),
    "triu_indices": _triangle(torch.triu_indices),
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
