"""Lazy modules on simulated GPUs: parameters and buffers that have no shape yet.

torch marks them with classes of their own, which our tensors cannot have. So such a tensor stays on the host, where it
takes no bytes, remembers its device, and becomes one of ours when its shape is known.
"""

import torch
from torch.nn.parameter import Buffer, Parameter, UninitializedTensorMixin
from torch.utils._pytree import tree_map_only

from simgpu.device.state import to_sim

_TYPES = ("half", "float", "double", "char", "short", "int", "long")
_moves = {name: getattr(torch.Tensor, name) for name in ("to", "cpu", "cuda", *_TYPES)}
_moves["sim"] = lambda tensor, *args, **options: tensor.sim(*args, **options)  # there once `sim` is registered
_get_device = torch.Tensor.device.__get__
_own_materialize = UninitializedTensorMixin.materialize
_own_answer = UninitializedTensorMixin.__torch_function__.__func__


def making(own, trained):
    """Return what makes a tensor without a shape that remembers its device; trained: whether it needs a gradient."""

    def new(cls, requires_grad=trained, device=None, dtype=None, *args, **options):
        asked = _get_device(torch.empty(0, device=device))  # the default device when none is given
        tensor = own(cls, requires_grad, "cpu" if asked.type == "sim" else asked, dtype, *args, **options)
        return _remember(tensor, asked)

    return new


def _remember(tensor, device):
    tensor._sim_device = device if device.type == "sim" else None
    return tensor


def answer(cls, func, types, args=(), kwargs=None):
    """Run one of the few functions of a tensor without a shape: those that move or convert it change it."""
    name, kwargs = getattr(func, "__name__", None), kwargs or {}
    tensor, *rest = args or (None,)
    here = getattr(tensor, "_sim_device", None)
    if func == torch.Tensor.device.__get__ and here is not None:
        return here
    if name not in _moves:
        return _own_answer(cls, func, types, args, kwargs)
    if not isinstance(tensor, UninitializedTensorMixin):  # it only says where to: ``x.to(lazy)``
        rest, kwargs = tree_map_only(UninitializedTensorMixin, _example, (rest, kwargs))
        return func(tensor, *rest, **kwargs)
    moved = _moves[name](_example(tensor), *rest, **kwargs)
    if not moved.is_sim and here is None:
        return _own_answer(cls, _moves[name], types, args, kwargs)
    with torch._C.DisableTorchFunctionSubclass():
        tensor.data = torch.empty(0, dtype=moved.dtype, device="cpu" if moved.is_sim else moved.device)
    return _remember(tensor, _get_device(moved))


def _example(tensor):
    """Return a tensor without elements that has the device and the type which a lazy one remembers."""
    return torch.empty(0, dtype=_dtype(tensor), device=tensor.device)


def _dtype(tensor):
    with torch._C.DisableTorchFunctionSubclass():
        return tensor.dtype


def materialize(tensor, shape, device=None, dtype=None):
    """Give a tensor its shape and, unless told otherwise, the device and the type that it remembers."""
    device = torch.device(to_sim(tensor.device if device is None else device))
    if device.type != "sim":
        return _own_materialize(tensor, shape, device, dtype)
    made = torch.empty(shape, device=device, dtype=dtype or _dtype(tensor))
    if isinstance(tensor, Parameter):
        made = Parameter(made, tensor.requires_grad)
    else:
        made = Buffer(made, persistent=tensor.persistent)
    torch.utils.swap_tensors(tensor, made)
    return None


def deepcopy(tensor, memo):
    """Return a copy, which remembers the same device."""
    if id(tensor) not in memo:
        memo[id(tensor)] = type(tensor)(tensor.requires_grad, tensor.device, _dtype(tensor))
    return memo[id(tensor)]
