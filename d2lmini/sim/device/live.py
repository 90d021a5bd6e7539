"""Which tensors exist on simulated GPUs: looked up when the set of GPUs changes, so that nothing is lost by that."""

import gc

from d2lmini.sim.device.state import state
from d2lmini.sim.device.tensor import SimTensor
from d2lmini.sim.model.memory import human


def tensors():
    """Return all tensors on simulated GPUs, also those that only wait for Python's garbage collection."""
    return [thing for thing in gc.get_objects() if type(thing) is SimTensor]


def check(tensors, count, capacity):
    """Raise RuntimeError if one of `tensors` is on a device that is not among the first `count`, or they do not fit."""
    problem = _problem(tensors, count, capacity)
    if problem:
        raise RuntimeError(problem)


def _problem(tensors, count, capacity):
    gone = [tensor for tensor in tensors if tensor._index >= count]
    if gone:
        return (
            f"expected no tensor on sim:{count} and above when they are taken away, found {len(gone)}, the first on "
            f"{gone[0].device} with shape {tuple(gone[0].shape)}: delete them first"
        )
    for index in range(min(count, len(state.gpus))):
        storages = {s._cdata: s.nbytes() for t in tensors if t._index == index for s in [t._real.untyped_storage()]}
        if sum(storages.values()) > capacity:
            return (
                f"expected at most {human(capacity)} in use on sim:{index}, which is to have no more, found "
                f"{human(sum(storages.values()))}: delete tensors first"
            )


def recount(tensors):
    """Count the storages of tensors that were made while memory was not counted."""
    if state.counting:
        for tensor in tensors:
            state.gpus[tensor._index].memory.add(tensor._real.untyped_storage())


def settle(count, capacity):
    """Return the tensors that stay when `count` devices of `capacity` bytes do; raises RuntimeError as `check` does."""
    found = tensors()
    if _problem(found, count, capacity):
        del found
        gc.collect()
        found = tensors()
    check(found, count, capacity)
    return found
