"""The index that is missing in ``x.to("sim")`` and ``torch.tensor(1, device="sim")``: the current device's.

torch asks its device guard for it, and the guard for Python devices always answers 0.
"""

import functools

import torch
from torch.utils._device import DeviceContext

from simgpu.device.state import state


def filling_in(function, makes=False):
    """Return `function` with the index filled in; makes: whether a default device counts."""

    @functools.wraps(function)
    def filled(*args, **kwargs):
        if state.current:
            args = tuple(map(_exact, args))
            device = kwargs.get("device")
            if device is None and makes:
                device = _default()
            if device is not None:
                kwargs["device"] = _exact(device)
        return function(*args, **kwargs)

    return filled


def filling_in_and_making(function):
    """As `filling_in`, for a function that makes a tensor, on the default device if it is given none."""
    return filling_in(function, makes=True)


def _default():
    """Return the default device, as it was given, or None."""
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def _exact(argument):
    if isinstance(argument, (str, torch.device)) and str(argument) == "sim":
        return state.gpus[state.check(state.current)].device
    return argument
