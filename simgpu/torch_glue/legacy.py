"""``torch.cuda.FloatTensor`` and its like inside `simgpu.as_cuda`: classes by which older programs make tensors."""

import torch

_TYPES = ["BFloat16", "Bool", "Byte", "Char", "Double", "Float", "Half", "Int", "Long", "Short"]


class TensorType:
    """Stands for ``torch.cuda.FloatTensor``, which makes, names and recognises tensors of one type on a GPU."""

    def __init__(self, name):
        self._name, self._on_host = f"torch.cuda.{name}", getattr(torch, name)
        self.dtype = self._on_host.dtype

    def __call__(self, *args):
        """Return a tensor of a size, or of a list's or array's numbers."""
        return self._on_host(*args).cuda()

    def __instancecheck__(self, thing):
        return isinstance(thing, torch.Tensor) and thing.is_cuda and thing.dtype == self.dtype

    def __repr__(self):
        return f"<class '{self._name}'>"

    def __str__(self):
        return self._name


def entries():
    """Yield (owner, name, what takes its place)."""
    for name in _TYPES:
        yield torch.cuda, f"{name}Tensor", TensorType(f"{name}Tensor")
    yield torch, "set_default_tensor_type", _set_default_tensor_type(torch.set_default_tensor_type)


def _set_default_tensor_type(own):
    def set_default_tensor_type(kind):
        """As torch's; from a type of CUDA's on tensors are made on the GPU."""
        if "torch.cuda." not in str(kind):
            return own(kind)
        torch.set_default_dtype(getattr(torch, str(kind).rpartition(".")[2]).dtype)
        torch.set_default_device("cuda")
        return None

    return set_default_tensor_type
