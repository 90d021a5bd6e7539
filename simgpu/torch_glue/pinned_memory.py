"""Pinned host memory where no real accelerator gives it: an ordinary copy that remembers that it was pinned.

The simulated clock copies from it faster, as a DMA engine does from memory that cannot move. On a machine with CUDA
the real thing is used, and counts as pinned here too.

``torch.empty(..., pin_memory=True)`` asks torch's C++ hooks for an allocator, which Python cannot give. So the
factories are replaced by ones that take ordinary memory and mark it; any other call they only pass on.
"""

import functools

import torch

from simgpu.device.dispatch import handles
from simgpu.device.random import SimGenerator
from simgpu.device.state import real_cuda

_OWN = torch._C.DispatchKey.CompositeExplicitAutograd  # where torch's own kernels are; with any other key it crashes


def pinning(function):
    """Return a factory that answers ``pin_memory=True`` for host tensors."""

    @functools.wraps(function)
    def factory(*args, **options):
        if not options.get("pin_memory") or real_cuda():
            made = function(*args, **options)
            if type(options.get("generator")) is SimGenerator and not made.is_sim:
                raise RuntimeError(f"Expected a '{made.device.type}' device type for generator but found 'sim'")
            return made
        made = function(*args, **{**options, "pin_memory": False})
        if made.device.type != "cpu":
            raise RuntimeError(f"Only dense CPU tensors can be pinned, expected no pin_memory for one on {made.device}")
        made.untyped_storage()._sim_pinned = True
        return made

    factory.__module__, factory.__qualname__ = "torch", function.__name__
    return factory


def pin_memory(own):
    """Return the kernel that copies a host tensor to what counts as pinned."""
    return _pin_memory


def is_pinned(own):
    """Return the kernel that says whether a host tensor is pinned."""
    return _is_pinned


def _pin_memory(x, device=None):
    real = _real_accelerator(device)
    if real is not None:
        return torch.ops.aten._pin_memory.default._op_dk(_OWN, x, real)
    copy = x.clone(memory_format=torch.preserve_format)
    copy.untyped_storage()._sim_pinned = True
    return copy


def _is_pinned(x, device=None):
    if getattr(x.untyped_storage(), "_sim_pinned", False):
        return True
    real = _real_accelerator(device)
    return real is not None and torch.ops.aten.is_pinned.default._op_dk(_OWN, x, real)


def _real_accelerator(device):
    """Return the real device to ask about pinned memory, or None."""
    if device is not None and device.type != "sim":
        return device
    return torch.device("cuda") if real_cuda() else None


@handles(torch.ops.aten.is_pinned.default)
def _is_pinned_there(func, args, kwargs):
    """Memory on a device is never pinned."""
    return False


@handles(torch.ops.aten._pin_memory.default)
def _pin_memory_there(func, args, kwargs):
    """Memory on a device cannot be pinned; CUDA's sentence."""
    raise RuntimeError(f"cannot pin '{args[0].type()}' only dense CPU tensors can be pinned")
