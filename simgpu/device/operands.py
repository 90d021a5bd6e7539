"""The operands of a call, walked once: the real tensors inside, the device that they are on, and a record's key.

The shapes and types of the tensors, and the plain numbers that decide a result's shape, make the key. Scalars take part
with their type only: a learning rate that changes at every call must not make a key of its own.
"""

import torch

from simgpu.device import placement_rules
from simgpu.device.tensor import SimTensor

_SCALARS = ("number", "float", "Generator", "Storage")
_Tensor = torch.Tensor


class Operands:
    """The operands of the operation `func`, as its schema has them."""

    def __init__(self, func):
        self._func, arguments = func, func._schema.arguments
        self._parts = [_part(str(argument.type)) for argument in arguments if not argument.kwarg_only]
        self._named = {argument.name: _part(str(argument.type)) for argument in arguments}

    def unwrap(self, args, kwargs, key):
        """Return the device's index, args and kwargs with real tensors, and whether a tensor of the host is among them.

        Args:
            args, kwargs: As torch dispatches them.
            key: A list that the shapes and types are appended to, or None.

        Raises:
            RuntimeError: Tensors on two devices.
        """
        index, reals, named, hosts = None, [], kwargs, False
        for value, part in zip(args, self._parts):
            if type(value) is SimTensor:
                if value._index != index:
                    index = value._index if index is None else placement_rules.mixed(self._func, args, kwargs)
                value = value._real
                if key is not None:
                    key.append((value.shape, value.dtype))
            else:
                if part is _shapes or isinstance(value, _Tensor):
                    index, hosts = self._look(value, index, hosts, args, kwargs)
                    value, part = real(value), _shapes
                if key is not None:
                    key.append(part(value))
            reals.append(value)
        if kwargs:
            named = {}
            for name, value in kwargs.items():
                index, hosts = self._look(value, index, hosts, args, kwargs)
                named[name] = value = real(value)
                if key is not None:
                    key.append((name, _shapes(value) if isinstance(value, _Tensor) else self._named[name](value)))
        return index, reals, named, hosts

    def _look(self, value, index, hosts, args, kwargs):
        """Return the device after a look at one more value, a tensor or a list, and whether one is the host's."""
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if type(tensor) is SimTensor:
                if tensor._index != index:
                    index = tensor._index if index is None else placement_rules.mixed(self._func, args, kwargs)
            elif isinstance(tensor, _Tensor):
                hosts = True
        return index, hosts


def real(value):
    """Return what is inside a wrapper, or a list of wrappers; anything else as it is."""
    if type(value) is SimTensor:
        return value._real
    return [real(item) for item in value] if isinstance(value, (list, tuple)) else value


def _part(kind):
    """Return the function that gives an argument's part of a key; kind: its type in the schema."""
    if "List[" in kind and "Tensor" in kind:
        return _shapes
    return type if "Tensor" in kind or any(word in kind for word in _SCALARS) else _plain


def _shapes(value):
    """Return the shape and type of a tensor, or those of a list of tensors, some of which may be None."""
    if isinstance(value, _Tensor):
        return value.shape, value.dtype
    return None if value is None else tuple(map(_shapes, value))


def _plain(value):
    return tuple(value) if type(value) is list else value
