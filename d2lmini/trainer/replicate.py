"""Copies of a module for several devices, which share nothing with each other but inside what the original shares."""

import copy

from torch import nn


def replicate(thing, devices):
    """Return a module for each device: `thing` itself, moved to the first, and copies of it that share nothing with it.

    A function, which has nothing to move, serves all devices.
    """
    if not isinstance(thing, nn.Module):
        return [thing] * len(devices)
    # Copied before anything is moved: ``to`` returns the tensor itself when it is there already, a copy never does.
    modules = [thing, *(copy.deepcopy(thing) for _ in devices[1:])]
    return [move(module, device) for module, device in zip(modules, devices, strict=True)]


def move(module, device):
    """Move a module in place, as ``module.to(device)`` does, but so that tensors it holds twice stay one tensor.

    ``to`` makes a copy for each name under which a buffer is registered, and for some devices of each parameter.
    """
    names = {}
    for owner in module.modules():
        for table in (owner._parameters, owner._buffers):
            for name, tensor in table.items():
                if tensor is not None:
                    names.setdefault(id(tensor), []).append((table, name))
    module.to(device)
    for (table, name), *others in names.values():
        for other, other_name in others:
            other[other_name] = table[name]
    return module
