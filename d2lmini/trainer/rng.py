"""The states of all random numbers that training may draw, as plain values that a checkpoint can hold."""

import random

import numpy as np
import torch


def get_state(devices=()):
    """Return the states of Python's, NumPy's and torch's generators, and of those of `devices`, under their names."""
    kind, keys, position, has_gauss, gauss = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, torch.from_numpy(keys.astype("int64")), position, has_gauss, gauss),
        "cpu": torch.get_rng_state(),
        "devices": {str(d): _module(d).get_rng_state(*_named(d)) for d in _accelerators(devices)},
    }


def set_state(state, devices=()):
    """Set the generators as `get_state` found them; a device that it was not asked about keeps its own state."""
    kind, keys, *rest = state["numpy"]
    random.setstate(state["python"])
    np.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    torch.set_rng_state(state["cpu"])
    for device in _accelerators(devices):
        if str(device) in state["devices"]:
            _module(device).set_rng_state(state["devices"][str(device)], *_named(device))


def _accelerators(devices):
    return {d for d in map(torch.device, devices) if d.type != "cpu"}


def _module(device):
    return torch.get_device_module(device)


def _named(device):
    return () if device.type == "mps" else (device,)  # there is one MPS device, and its functions take none
