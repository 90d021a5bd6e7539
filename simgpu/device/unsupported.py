"""What is refused: sparse, quantised, mkldnn and nested tensors on simulated GPUs, and tensors for other processes."""

from multiprocessing.reduction import ForkingPickler

import torch

from simgpu.device.dispatch import handles
from simgpu.device.tensor import SimTensor, refusal

aten = torch.ops.aten
_libraries = []


def register():
    """Refuse every operation on such tensors, and sending ours; only once a process."""
    ForkingPickler.register(SimTensor, _send)
    for kind, key in (
        ("sparse", "SparsePrivateUse1"),
        ("sparse", "SparseCsrPrivateUse1"),
        ("quantised", "QuantizedPrivateUse1"),
        ("nested", "NestedTensorPrivateUse1"),
    ):
        library = torch.library.Library("_", "IMPL", key)
        library.fallback(_refuse(kind))
        _libraries.append(library)


def _send(tensor):
    raise RuntimeError(
        f"expected tensors on the CPU for another process, got one on {tensor.device}: simulated GPUs "
        "belong to one process, so send tensor.cpu()"
    )


def _refuse(kind):
    def fallback(func, *args, **kwargs):
        raise refusal(kind)

    return fallback


@handles(
    aten._nested_tensor_from_tensor_list.default,
    aten._nested_tensor_from_mask.default,
    aten._nested_view_from_buffer.default,
    aten._nested_from_padded.default,
)
def _nested(func, args, kwargs):
    raise refusal("nested")


@handles(aten._nested_tensor_from_mask_left_aligned.default)
def _never_aligned(func, args, kwargs):
    """Tell ``nn.TransformerEncoder`` not to make a nested tensor of a padded batch, but to work on it as it is."""
    return False
