"""The states of all random numbers that training may draw, as plain values that a checkpoint can hold."""

import random
from contextlib import contextmanager

import numpy as np
import torch


def get_state(devices=()):
    """Return the states of Python's, NumPy's and torch's generators, and of those of `devices`, under their names."""
    kind, keys, *rest = np.random.get_state()
    version, words, second = random.getstate()
    return {
        "python": (version, torch.tensor(words), second),  # as a tensor, whose bytes do not depend on the numbers
        "numpy": (kind, torch.from_numpy(keys.astype("int64")), *rest),
        "cpu": torch.get_rng_state(),
        "devices": {str(d): _generator(d)[0]() for d in _accelerators(devices)},
    }


def set_state(state, devices=()):
    """Set the generators as `get_state` found them; a device that it was not asked about keeps its own state."""
    kind, keys, *rest = state["numpy"]
    version, words, second = state["python"]
    random.setstate((version, tuple(map(int, words)), second))
    np.random.set_state((kind, keys.numpy().astype("uint32"), *rest))
    torch.set_rng_state(state["cpu"])
    for device in _accelerators(devices):
        if str(device) in state["devices"]:
            _generator(device)[1](state["devices"][str(device)])


def _accelerators(devices):
    return {d for d in map(torch.device, devices) if d.type != "cpu"}


def _generator(device):
    """Return the functions that get and set the state of a device's generator."""
    module = torch if device.type == "cpu" else torch.get_device_module(device)
    if device.type in ("cpu", "mps"):  # of these there is one
        return module.get_rng_state, module.set_rng_state
    return lambda: module.get_rng_state(device), lambda state: module.set_rng_state(state, device)


class OwnNumbers:
    """The random numbers that a replica draws: apart from those that every rank draws alike, for its batches."""

    def __init__(self, device, rank):
        """Begin with a state of this rank's own, made from the seed that all ranks have."""
        self._get, self._set = _generator(device)
        seed = (torch.initial_seed() + (rank + 1) * 0x9E3779B97F4A7C15) % 2**63  # golden ratio: seeds stay apart
        self.state = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def drawn(self):
        """Draw from these numbers inside."""
        others = self._get()
        self._set(self.state)
        try:
            yield
        finally:
            self.state = self._get()
            self._set(others)
