"""Methods of torch's storages that must see the label of a simulated GPU, and how files name our devices."""

import torch

from simgpu.device.state import state, to_sim
from simgpu.device.tensor import label


def new(own):
    """Return the method that makes a storage; for ours torch's would end the process: it has no allocator for it."""

    def make(cls, *args, device=None, **kwargs):
        if device is None or torch.device(device).type != "sim":
            return own(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        index = state.index(torch.device(device))
        if args and isinstance(args[0], int):
            state.gpus[index].allocator.check(args[0])
        return label(own(cls, *args, **kwargs), index)

    return make


def device(own):
    """Return the property that names a storage's device."""

    def find(storage):
        index = getattr(storage, "_sim", None)
        return own.__get__(storage) if index is None else state.gpus[index].device

    return property(find)


def resize_(own):
    """Return the method that changes the number of bytes; it raises torch.OutOfMemoryError if they do not fit."""

    def resize(storage, size):
        index = getattr(storage, "_sim", None)
        if index is not None and state.counting:
            state.gpus[index].allocator.check(size - storage.nbytes())
        own(storage, size)
        return storage if index is None else label(storage, index)

    return resize


def tag(storage):
    """Name a storage's device in a file."""
    return str(storage.device) if hasattr(storage, "_sim") else None


def restore(storage, location):
    """Return a loaded storage's copy on the simulated GPU that `location` names, or None if it names none."""
    location = to_sim(location)
    if location != "sim" and not location.startswith("sim:"):
        return None
    device = torch.serialization._validate_device(location, "sim")
    return torch.UntypedStorage(storage.nbytes(), device=device).copy_(storage, False)
