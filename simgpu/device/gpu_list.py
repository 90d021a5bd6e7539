"""Changing how many simulated GPUs there are, so that nothing on them is lost: what `enable` and `disable` call."""

import gc

import torch

from simgpu.accounting.allocator import Allocator, human
from simgpu.device import random
from simgpu.device.state import Gpu, state
from simgpu.device.tensor import SimTensor
from simgpu.hardware.topology import Cluster


def tensors():
    """Return all tensors on simulated GPUs, also those that only wait for Python's garbage collection."""
    return [thing for thing in gc.get_objects() if type(thing) is SimTensor]


def resize(count, capacity, counting, real_device):
    """Have `count` devices of `capacity` bytes: keep those that there are, drop or add others.

    Args:
        count: How many.
        capacity: Bytes of each.
        counting: Whether memory is counted; what is on them is then counted anew.
        real_device: The torch.device on which the real tensors lie, "meta" for none but their shapes.

    Raises:
        RuntimeError: A tensor is on a device that would go, takes too much memory, or is there when `real_device`
            changes. Nothing is changed then.
    """
    found = _staying(count, capacity, real_device) if _may_hold_tensors() else []
    state.counting, state.real_device = counting, real_device
    del state.gpus[count:]
    state.gpus += new(range(len(state.gpus), count), capacity)
    for gpu in state.gpus:
        gpu.allocator.restart(capacity)
    if counting:
        for tensor in found:  # some were made while memory was not counted
            state.gpus[tensor._index].allocator.add(tensor._real.untyped_storage())
    if state.current >= count:
        state.current = 0
    torch.nn.parallel._functions._streams = None  # a list with one entry for each device


def new(indices, capacity):
    """Return a list of new GPUs of `capacity` bytes, numbered so, with generators that are seeded as the program's."""
    made = [
        Gpu(index, torch.device("sim", index), Allocator(index, capacity, _current_stream), random.make(index))
        for index in indices
    ]
    for gpu in made:
        gpu.generator.manual_seed(torch.initial_seed())
    return made


def _current_stream(index):
    return None if state.clock is None else state.clock.current_stream(index)


def _may_hold_tensors():
    """Return whether there may be tensors on the GPUs: False only where the counted memory shows that there are none.

    To look at all of Python's objects takes a tenth of a second. The memories of a cluster's other nodes are not here.
    """
    counted = state.counting and not isinstance(state.machine, Cluster)
    return bool(state.gpus) and (not counted or any(gpu.allocator.blocks() for gpu in state.gpus))


def _staying(count, capacity, real_device):
    gc.collect()  # else what ended ranks have left would count again
    found = tensors()
    problem = _problem(found, count, capacity, real_device)
    if problem:
        raise RuntimeError(problem)
    return found


def _problem(tensors, count, capacity, real_device):
    gone = [tensor for tensor in tensors if tensor._index >= count]
    if gone:
        return (
            f"expected no tensor on sim:{count} and above when they are taken away, found {len(gone)}, the first on "
            f"{gone[0].device} with shape {tuple(gone[0].shape)}: delete them first, and what has a grad_fn that leads "
            "to them"
        )
    if tensors and real_device != state.real_device:
        return (
            f"expected no tensors on simulated GPUs when shapes_only changes, found {len(tensors)}, the first with "
            f"shape {tuple(tensors[0].shape)}: delete them first"
        )
    for index in range(min(count, len(state.gpus))):
        storages = {s._cdata: s.nbytes() for t in tensors if t._index == index for s in [t._real.untyped_storage()]}
        if sum(storages.values()) > capacity:
            return (
                f"expected at most {human(capacity)} in use on sim:{index}, which is to have no more, found "
                f"{human(sum(storages.values()))}: delete tensors first"
            )
