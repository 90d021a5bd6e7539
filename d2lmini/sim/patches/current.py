"""The current device: what a bare ``"sim"`` means, in each thread.

torch asks its device guard for the index that is missing in ``x.to("sim")`` and ``torch.tensor(1, device="sim")``, and
the guard for Python devices always answers 0. As long as some thread's current device is another, these functions of
torch are replaced by ones that fill the index in; otherwise they are torch's own.
"""

import functools
import threading

import torch
from torch.utils._device import DeviceContext

from d2lmini.sim.device.state import state

_REPLACED = ((torch.Tensor, "to"), (torch, "tensor"), (torch, "as_tensor"), (torch, "asarray"))
_lock = threading.Lock()
_away = 0  # threads whose current device is not 0
_own = {}


def select(index):
    """Make device `index` the calling thread's current one."""
    global _away
    with _lock:
        before = _away
        _away += bool(index) - bool(state.current)
        state.current = index
        if not before and _away:
            _replace()
        elif before and not _away:
            _restore()


def _replace():
    for owner, name in _REPLACED:
        _own[owner, name] = owner.__dict__.get(name)
        setattr(owner, name, _filling_in(getattr(owner, name), owner is torch))


def _restore():
    for (owner, name), function in _own.items():
        if function is None:  # inherited from a class in C
            delattr(owner, name)
        else:
            setattr(owner, name, function)


def _filling_in(function, makes):
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


def _default():
    """Return the default device, as it was given, or None."""
    modes = torch.overrides._get_current_function_mode_stack()
    return next((mode.device for mode in reversed(modes) if isinstance(mode, DeviceContext)), None)


def _exact(argument):
    if isinstance(argument, (str, torch.device)) and str(argument) == "sim":
        return state.gpus[state.check(state.current)].device
    return argument
