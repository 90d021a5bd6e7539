"""Parameters that move to a simulated GPU and back, and stay the objects that optimizers and others hold."""

import torch
from torch.nn.parameter import is_lazy

from simgpu.device.tensor import SimTensor
from simgpu.device.tensor_swap import become, exchange


def swapping(own):
    """Return ``torch.utils.swap_tensors``; torch's own refuses a tensor that a weak reference or a graph holds."""
    return lambda a, b: (exchange if SimTensor in (type(a), type(b)) else own)(a, b)


def compatible(own):
    """Return the question whether a module that moves may assign to the parameter's ``data``: then it stays itself."""

    def has_compatible_shallow_copy_type(input, from_):  # the names that torch checks
        moves = (type(input) is SimTensor) != (type(from_) is SimTensor) and not is_lazy(input)
        return own(input, from_) or (moves and isinstance(input, torch.nn.Parameter))

    return has_compatible_shallow_copy_type


def data(own):
    """Return the property ``data`` of a tensor on the host, which may be given one on a simulated GPU."""

    def assign(tensor, value):
        moves = type(value) is SimTensor and type(tensor) is not SimTensor
        become(tensor, value) if moves else own.__set__(tensor, value)

    return property(own.__get__, assign)
