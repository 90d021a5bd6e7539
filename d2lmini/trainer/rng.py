"""The states of all random numbers that training may draw, as plain values that a checkpoint can hold."""

import random
from contextlib import contextmanager

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


def check(state, devices=()):
    """Raise an error unless `set_state` would take `state`; nothing is set."""
    kind, keys, *rest = state["numpy"]
    random.Random().setstate(state["python"])
    np.random.RandomState().set_state((kind, keys.numpy().astype("uint32"), *rest))
    torch.Generator().set_state(state["cpu"])
    for name, mine in get_state(devices)["devices"].items():
        theirs = state["devices"].get(name, mine)
        if (theirs.dtype, theirs.shape) != (mine.dtype, mine.shape):
            raise ValueError(f"the random numbers of {name} have a state of {list(theirs.shape)} {theirs.dtype}")


def _accelerators(devices):
    return {d for d in map(torch.device, devices) if d.type != "cpu"}


def _module(device):
    return torch.get_device_module(device)


def _named(device):
    return () if device.type == "mps" else (device,)  # there is one MPS device, and its functions take none


class OwnNumbers:
    """The random numbers that a replica draws: apart from those that every rank draws alike, for its batches."""

    def __init__(self, device, rank):
        """Begin with a state of this rank's own, made from the seed that all ranks have."""
        on_cpu = device.type == "cpu"
        self.module, self.named = (torch, ()) if on_cpu else (_module(device), _named(device))
        seed = (torch.initial_seed() + (rank + 1) * 0x9E3779B97F4A7C15) % 2**63  # golden ratio: seeds stay apart
        self.state = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def drawn(self):
        """Draw from these numbers inside."""
        others = self.module.get_rng_state(*self.named)
        self.module.set_rng_state(self.state, *self.named)
        try:
            yield
        finally:
            self.state = self.module.get_rng_state(*self.named)
            self.module.set_rng_state(others, *self.named)
