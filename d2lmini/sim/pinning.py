"""Pinned host memory where no real accelerator gives it: an ordinary copy that remembers that it was pinned.

The simulated clock copies from it faster, as a DMA engine does from memory that cannot move. On a machine with CUDA
the real thing is used, and counts as pinned here too.
"""

import torch

_library = None


def is_marked(tensor):
    """Return whether a host tensor lies in pinned memory."""
    return getattr(tensor.untyped_storage(), "_sim_pinned", False) or (torch.cuda.is_available() and tensor.is_pinned())


def register():
    """Answer ``x.pin_memory()`` and ``x.is_pinned()`` for host tensors; only once a process."""
    global _library
    _library = torch.library.Library("aten", "IMPL", "CPU")
    _library.impl("_pin_memory", _pin_memory)
    _library.impl("is_pinned", _is_pinned)


def _pin_memory(x, device=None):
    real = _real_accelerator(device)
    if real is not None:
        return torch.ops.aten._pin_memory.default._op_dk(torch._C.DispatchKey.CUDA, x, real)
    copy = x.clone(memory_format=torch.preserve_format)
    copy.untyped_storage()._sim_pinned = True
    return copy


def _is_pinned(x, device=None):
    if getattr(x.untyped_storage(), "_sim_pinned", False):
        return True
    real = _real_accelerator(device)
    return real is not None and torch.ops.aten.is_pinned.default._op_dk(torch._C.DispatchKey.CUDA, x, real)


def _real_accelerator(device):
    """Return the real device to ask about pinned memory, or None."""
    if device is not None and device.type != "sim":
        return device
    return torch.device("cuda") if torch.cuda.is_available() else None
