"""How torch learns of the device type ``sim``: names, a guard, hooks, kernels, storages.

`register` is called once in a process, and cannot be undone: torch has no way back.
"""

import warnings

import torch
from torch.utils import _device, backend_registration

from simgpu.device import api, attention, copies, factories, guard, kernels, signals, unsupported
from simgpu.device.state import state, to_sim
from simgpu.device.tensor import SimTensor, label


def register():
    """Make ``sim`` a device type of torch, with `simgpu.device.api` as ``torch.sim``; only once in a process."""

    class Hooks(torch._C._acc.PrivateUse1Hooks):
        is_available = is_built = has_primary_context = signals.undisturbed(lambda *_: True)

    backend_registration._setup_privateuseone_for_python_backend("sim", api, Hooks(), guard.Guard())
    for module in (factories, copies, kernels, attention, unsupported):
        module.register()
    torch.serialization.register_package(19, tag, restore)
    # Python need not name the accelerator any more, but must here: without a name torch's kernels would ask for ours.
    warnings.filterwarnings("ignore", "The argument 'device' of Tensor.*pin.* is deprecated")
    _device._device_constructors()  # keeps torch's own functions, by which `with torch.device` knows them


def with_ours(types):
    """Return the classes of tensors of which torch's functions take lists, with ours."""
    return [*types, SimTensor]


# -- storages --------------------------------------------------------------------------------------------------------


def storage_new(own):
    """Return the method that makes a storage; for ours torch's would end the process: it has no allocator for it."""

    def make(cls, *args, device=None, **kwargs):
        if device is None or torch.device(device).type != "sim":
            return own(cls, *args, **({} if device is None else {"device": device}), **kwargs)
        index = state.index(torch.device(device))
        if args and isinstance(args[0], int):
            state.gpus[index].allocator.check(args[0])
        return label(own(cls, *args, **kwargs), index)

    return make


def storage_device(own):
    """Return the property that names a storage's device."""

    def find(storage):
        index = getattr(storage, "_sim", None)
        return own.__get__(storage) if index is None else state.gpus[index].device

    return property(find)


def storage_resize(own):
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
