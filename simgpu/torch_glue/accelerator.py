"""``torch.accelerator`` and what else asks for "the" accelerator: simulated GPUs where they lead, else the real one.

Once a device type made in Python is registered, torch's C++ code takes it for the accelerator of the machine, and its
guard for Python devices knows one device only. So the functions that ``torch.accelerator`` calls are replaced: they ask
``torch.sim``, or ``torch.cuda`` on a machine where that stays the accelerator.
"""

import torch

from simgpu.device.state import state


def _lead():
    """Return the module of the accelerator: torch.sim or torch.cuda."""
    return torch.sim if state.is_accelerator else torch.cuda


def _name():
    return "cuda" if state.as_cuda else "sim"


def _current():
    if state.is_accelerator:
        return torch.device(_name())
    return torch.device("cuda") if torch.backends.cuda.is_built() else None


def available_type(real):
    """Return the function that names the type of the accelerator."""

    def name():
        return _name() if state.is_accelerator else real()

    return name


def _exchange(index):
    before = _lead().current_device()
    if index >= 0:
        _lead().set_device(index)
    return before


_FUNCTIONS = {  # of torch._C: what `torch.accelerator` calls
    "_accelerator_getAccelerator": _current,
    "_accelerator_getDeviceIndex": lambda: _lead().current_device(),
    "_accelerator_setDeviceIndex": lambda index: _lead().set_device(index),
    "_accelerator_exchangeDevice": _exchange,
    "_accelerator_maybeExchangeDevice": _exchange,
    "_accelerator_getStream": lambda index: _lead().current_stream(index),
    "_accelerator_setStream": lambda stream: _lead().set_stream(stream),
    "_accelerator_synchronizeDevice": lambda index: _lead().synchronize(index),
    "_accelerator_isAllocatorInitialized": lambda: True,
    "_accelerator_emptyCache": lambda: _lead().empty_cache(),
    "_accelerator_emptyHostCache": lambda: None,
    "_accelerator_getDeviceStats": lambda index: _lead().memory_stats(index),
    "_accelerator_resetAccumulatedStats": lambda index: _lead().reset_accumulated_memory_stats(index),
    "_accelerator_resetPeakStats": lambda index: _lead().reset_peak_memory_stats(index),
    "_accelerator_getMemoryInfo": lambda index: _lead().mem_get_info(index),
    "_accelerator_getDeviceCapability": lambda index: {"supported_dtypes": set(torch.sim.get_amp_supported_dtype())},
}


def function(own):
    """Return what takes the place of a function of torch._C."""
    return _FUNCTIONS[own.__name__]
