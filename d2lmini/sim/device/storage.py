"""The storages of tensors on simulated GPUs: bytes in host memory that say which device they stand for.

They are of torch's own class, by which torch knows a storage when it saves, copies and sends one; a label on the object
makes the difference, and the few methods of the class that must see it are replaced.
"""

import torch

from d2lmini.sim.device.state import state

_base = torch._C.StorageBase


def register():
    """Make torch's storages see the label, and let files name our devices; only once a process."""
    storages = torch.UntypedStorage
    storages.__new__, storages.resize_, storages.device = _new, _resize, property(_device)
    torch.serialization.register_package(19, _tag, _restore)


def storage_of(tensor):
    """Return the storage of a shell, labelled with its device."""
    storage = tensor._real.untyped_storage()
    return storage if hasattr(storage, "_sim") else label(storage, tensor._index)


def label(storage, index):
    """Make a host storage stand for one on device `index`, count it, and return it."""
    if state.counting:
        state.gpus[index].memory.add(storage)
    storage._sim = index
    return storage


def _new(cls, *args, device=None, **kwargs):
    """Make a storage; for a simulated GPU torch's own way would end the process, as it has no allocator for it."""
    if device is None or torch.device(device).type != "sim":
        return _base.__new__(cls, *args, **({} if device is None else {"device": device}), **kwargs)
    index = state.index(torch.device(device))
    if args and isinstance(args[0], int):
        state.gpus[index].memory.check(args[0])
    return label(_base.__new__(cls, *args, **kwargs), index)


def _device(storage):
    """The torch.device."""
    index = getattr(storage, "_sim", None)
    return _base.device.__get__(storage) if index is None else state.gpus[index].device


def _resize(storage, size):
    """Change the number of bytes; raises torch.OutOfMemoryError if it does not fit."""
    index = getattr(storage, "_sim", None)
    if index is not None and state.counting:
        state.gpus[index].memory.check(size - storage.nbytes())
    _base.resize_(storage, size)
    return storage if index is None else label(storage, index)


def _tag(storage):
    """Name a storage's device in a file."""
    return str(storage.device) if hasattr(storage, "_sim") else None


def _restore(storage, location):
    """Return a loaded storage's copy on the simulated GPU that `location` names, or None if it names none."""
    if location != "sim" and not location.startswith("sim:"):
        return None
    device = torch.serialization._validate_device(location, "sim")
    return torch.UntypedStorage(storage.nbytes(), device=device).copy_(storage, False)
