"""The storages of tensors on simulated GPUs: bytes in host memory that say which device they stand for.

They are of torch's own class, by which torch knows a storage when it saves, copies and sends one; a label on the object
makes the difference, which the replaced methods in `patches.storages` see.
"""

from simgpu.device.state import real_cuda, state


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


def is_pinned(tensor):
    """Return whether a host tensor lies in pinned memory: real, or marked as such by `patches.pinning`."""
    return getattr(tensor.untyped_storage(), "_sim_pinned", False) or (real_cuda() and tensor.is_pinned())
