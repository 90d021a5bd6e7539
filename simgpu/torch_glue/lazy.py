"""Lazy modules on simulated GPUs: parameters and buffers that have no shape yet.

torch marks them with classes of their own, which our tensors cannot have. So such a tensor stays on the host, where it
takes no bytes, remembers its device, and becomes one of ours when its shape is known.
"""

import torch
from torch.nn.parameter import Buffer, Parameter, UninitializedTensorMixin
from torch.utils._pytree import tree_map_only

from simgpu.device.state import to_sim

_TYPES = ("half", "float", "double", "char", "short", "int", "long")
_moves = {name: getattr(torch._C.TensorBase, name) for name in ("to", "cpu", "cuda", *_TYPES)}
_moves["sim"] = lambda tensor, *args, **options: tensor.sim(*args, **options)  # there once `sim` is registered
_get_device = torch.Tensor.device.__get__


def parameter(own):
    """Return what makes a parameter without a shape that remembers its device."""
    return _making(own, trained=True)


def buffer(own):
    """Return what makes a buffer without a shape that remembers its device."""
    return _making(own, trained=False)


def _making(own, trained):

    def new(cls, requires_grad=trained, device=None, dtype=None, *args, **options):
        asked = _get_device(torch.empty(0, device=device))  # the default device when none is given
        tensor = own(cls, requires_grad, "cpu" if asked.type == "sim" else asked, dtype, *args, **options)
        return _remember(tensor, asked)

    return new


def _remember(tensor, device):
    tensor._sim_device = device if device.type == "sim" else None
    return tensor


def answer(own):
    """Return what runs the few functions of a tensor without a shape: those that move or convert it change it."""
    own = own.__func__

    def run(cls, func, types, args=(), kwargs=None):
        name, kwargs = getattr(func, "__name__", None), kwargs or {}
        tensor, *rest = args or (None,)
        here = getattr(tensor, "_sim_device", None)
        if func == torch.Tensor.device.__get__ and here is not None:
            return here
        if name not in _moves:
            return own(cls, func, types, args, kwargs)
        if not isinstance(tensor, UninitializedTensorMixin):  # it only says where to: ``x.to(lazy)``
            rest, kwargs = tree_map_only(UninitializedTensorMixin, _example, (rest, kwargs))
            return func(tensor, *rest, **kwargs)
        moved = _moves[name](_example(tensor), *rest, **kwargs)
        if not moved.is_sim and here is None:
            return own(cls, _moves[name], types, args, kwargs)
        with torch._C.DisableTorchFunctionSubclass():
            tensor.data = torch.empty(0, dtype=moved.dtype, device="cpu" if moved.is_sim else moved.device)
        return _remember(tensor, _get_device(moved))

    return classmethod(run)


def _example(tensor):
    """Return a tensor without elements that has the device and the type which a lazy one remembers."""
    return torch.empty(0, dtype=_dtype(tensor), device=tensor.device)


def _dtype(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.dtype


def materialize(own):
    """Return what gives a tensor its shape and, unless told otherwise, the device and the type that it remembers."""

    def materialize(tensor, shape, device=None, dtype=None):
        device = torch.device(to_sim(tensor.device if device is None else device))
        if device.type != "sim":
            own(tensor, shape, device, dtype)
            return
        made = torch.empty(shape, device=device, dtype=dtype or _dtype(tensor))
        if isinstance(tensor, Parameter):
            made = Parameter(made, tensor.requires_grad)
        else:
            made = Buffer(made, persistent=tensor.persistent)
        torch.utils.swap_tensors(tensor, made)

    return materialize


def deepcopy(own):
    """Return what copies a tensor without a shape, which remembers the same device."""

    def deepcopy(tensor, memo):
        if id(tensor) not in memo:
            memo[id(tensor)] = type(tensor)(tensor.requires_grad, tensor.device, _dtype(tensor))
        return memo[id(tensor)]

    return deepcopy
