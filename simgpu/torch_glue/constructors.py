"""``torch.Generator``, ``torch.Stream``, ``torch.Event``: they make ours for simulated GPUs and torch's own otherwise.

torch makes these objects in C++, through hooks that Python cannot fill in. The stand-ins only choose who makes one:
what comes out is an ordinary object, and ``isinstance(x, torch.Generator)`` holds for both kinds.
"""

import torch

from simgpu.device import random, streams
from simgpu.device.state import state, to_sim


class _Either(type):
    """The type of a stand-in: its instances are those of the real class and of ours."""

    def __instancecheck__(cls, thing):
        return isinstance(thing, cls.kinds)


def _stand_in(real, ours, make):
    def new(cls, device=None, *args, **kwargs):
        index = _simulated(device, real)
        if index is None:
            return real(*args, **kwargs) if device is None else real(device, *args, **kwargs)
        return make(index, *args, **kwargs)

    names = {"__module__": "torch", "__new__": new, "__doc__": real.__doc__}  # by its module pickle finds it
    return _Either(real.__name__, (), {**names, "kinds": (real, ours)})


def _simulated(device, real):
    """Return the index of the simulated GPU that `device` means, or None; without a type the accelerator is meant."""
    if device is None:
        return state.current if state.is_accelerator and real is not _GENERATOR else None
    if isinstance(device, int):
        return state.check(device) if state.is_accelerator else None
    device = torch.device(to_sim(device))
    return state.index(device) if device.type == "sim" else None


def _event(index, enable_timing=False, blocking=False, interprocess=False):
    return streams.Event(enable_timing, blocking, interprocess)


_GENERATOR = torch._C.Generator


def generator(real):
    """Return the stand-in for ``torch.Generator``."""
    return _stand_in(real, random.SimGenerator, random.make)


def stream(real):
    """Return the stand-in for ``torch.Stream``."""
    return _stand_in(real, streams.Stream, streams.Stream)


def event(real):
    """Return the stand-in for ``torch.Event``."""
    return _stand_in(real, streams.Event, _event)
