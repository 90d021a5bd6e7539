"""Pinned memory for DDP's C++ code, which asks for it past Python where some parameters may go unused.

The code copies its map of used parameters from pinned memory to the device. A kernel in Python for
``torch.empty_strided`` can give what the hooks of torch cannot, but would slow down every program; so it is there only
while such a DDP is.
"""

import torch
import torch.distributed as dist

_kernel = None


class Reducer(dist.Reducer):
    """DDP's reducer, which puts the kernel in place when it is needed. The arguments are those of ``dist.Reducer``."""

    def __init__(self, *args):
        super().__init__(*args)
        if args[6]:  # find_unused_parameters
            provide()

    def _set_static_graph(self):
        provide()
        super()._set_static_graph()


def provide():
    """Put the kernel in place; doing it again changes nothing."""
    global _kernel
    if _kernel is None:
        _kernel = torch.library.Library("aten", "IMPL", "CPU")
        _kernel.impl("empty_strided", _empty)


def withdraw():
    """Put torch's own kernel back."""
    global _kernel
    if _kernel is not None:
        _kernel._destroy()
        _kernel = None


def _empty(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    made = torch.empty(length, dtype=dtype, device="cpu").as_strided(size, stride)
    if pin_memory:
        made.untyped_storage()._sim_pinned = True
    return made
