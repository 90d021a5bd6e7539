"""The tensors of a call, in lists or lists of lists, as `torch.distributed` hands them over."""

import torch

from simgpu.device.tensor import SimTensor
from simgpu.torch_glue.c10d import awaited, parts_of_sparse


def listed(tensors):
    """Return a list of tensors, given one or a list."""
    return [tensors] if isinstance(tensors, torch.Tensor) else tensors


def flat(tensors):
    """Return the tensors of nested lists in one list."""
    return [tensor for item in tensors for tensor in (flat(item) if isinstance(item, (list, tuple)) else [item])]


def unwrap(tensors):
    """Return nested lists of tensors with the results of functional collectives waited for, as what they hold.

    Raises:
        TypeError: A DTensor: what a rank holds of it is not its value.
    """
    if isinstance(tensors, (list, tuple)):
        return [unwrap(tensor) for tensor in tensors]
    return awaited(tensors)


def dtypes(tensors):
    """Return the name of the type of nested lists of tensors, or the list of their types where these differ."""
    found = [str(tensor.dtype).removeprefix("torch.") for tensor in flat([tensors])]
    return found[0] if len(set(found)) == 1 else found


def shapes(tensors):
    """Return the shapes of a list of tensors, as lists."""
    return [list(tensor.shape) for tensor in tensors]


def nbytes(tensors):
    """Return the bytes of tensors in nested lists."""
    return sum(_nbytes(tensor) for tensor in flat(tensors))


def _nbytes(tensor):
    if tensor.is_sparse:
        return nbytes(parts_of_sparse(tensor))
    return tensor.numel() * tensor.element_size()


def real(tensors):
    """Return nested lists of tensors with those on simulated GPUs replaced by the ones that hold their values."""
    if isinstance(tensors, (list, tuple)):
        return [real(tensor) for tensor in tensors]
    if type(tensors) is SimTensor:
        return tensors._real
    return tensors if tensors.is_sparse else tensors.detach()  # a sparse one that is detached is filled apart


def check_shares(name, wholes, parts, size):
    """Raise ValueError unless the parts of `size` ranks, one after the other, fill each whole."""
    for whole, part in zip(wholes, parts, strict=True):
        if whole.numel() != size * part.numel() or not whole.is_contiguous():
            raise ValueError(
                f"{name}: expected a contiguous tensor of as many elements as {list(part.shape)} times the world "
                f"size, {size} ranks, got shape {list(whole.shape)} with strides {whole.stride()}"
            )


def split(tensor, sizes, size):
    """Return the parts of a tensor's first dimension, of the given sizes or of equal ones for `size` ranks."""
    if not sizes and (tensor.dim() == 0 or tensor.shape[0] % size):
        raise ValueError(
            f"expected split sizes, or a first dimension that {size} ranks can share equally, "
            f"got shape {list(tensor.shape)}"
        )
    return list(tensor.detach().split(sizes or [tensor.shape[0] // size] * size))
