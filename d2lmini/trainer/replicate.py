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
    return [module.to(device) for module, device in zip(modules, devices, strict=True)]
