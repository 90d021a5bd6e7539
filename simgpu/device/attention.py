"""``scaled_dot_product_attention`` as one kernel, with memory linear in the sequence, as GPUs have it.

torch writes attention out as products and a softmax on a device type that it does not know. Here the operation of
CUDA's fused kernel (Dao et al., FlashAttention, NeurIPS 2022) takes their place; DTensor and `context_parallel` know
how to share it. It takes no mask, and has results for CUDA's random numbers, which torch.compile wants to keep: with a
mask, and where a program is traced, the CPU's operation stands in. What neither can do is still written out:
dropout, masks with gradients, values of another width than the keys.
"""

import torch
from torch._higher_order_ops.flex_attention import (
    flex_attention,
    flex_attention_backward,
    sdpa_dense,
    sdpa_dense_backward,
)
from torch._subclasses import FakeTensor
from torch._subclasses.functional_tensor import FunctionalTensor

from simgpu.device.dispatch import handles
from simgpu.device.tensor import SimTensor

aten = torch.ops.aten
_libraries = []
_TRACED = FakeTensor, FunctionalTensor


def register():
    """Install the kernel; only once a process."""
    library = torch.library.Library("aten", "IMPL", "AutogradPrivateUse1")
    library.impl("scaled_dot_product_attention", attention)
    _libraries.append(library)
    # As on CUDA where flex_attention is not compiled: torch calls it for CUDA tensors alone, so inside `as_cuda`.
    flex_attention.py_impl(SimTensor)(sdpa_dense)
    flex_attention_backward.py_impl(SimTensor)(sdpa_dense_backward)


def attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Return softmax(query · keyᵀ × scale + mask) · value; shapes (batch, heads, length, width), as torch documents."""
    if not _fused(query, key, value, attn_mask, dropout_p):
        return aten._scaled_dot_product_attention_math(
            query, key, value, attn_mask, dropout_p, is_causal, None, scale=scale, enable_gqa=enable_gqa
        )[0]
    if enable_gqa:
        key, value = (x.repeat_interleave(query.shape[1] // key.shape[1], 1) for x in (key, value))
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill_(~attn_mask, float("-inf"))
    if attn_mask is None and not isinstance(query, _TRACED):
        return aten._scaled_dot_product_flash_attention(query, key, value, dropout_p, is_causal, scale=scale)[0]
    kernel = aten._scaled_dot_product_flash_attention_for_cpu
    return kernel(query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale)[0]


def _fused(query, key, value, mask, dropout):
    shapes = [x.shape for x in (query, key, value)]
    return (
        dropout == 0
        and all(len(shape) == 4 and 0 not in shape for shape in shapes)
        and shapes[0][-1] == shapes[1][-1] == shapes[2][-1]
        and query.dtype == key.dtype == value.dtype
        and (mask is None or (not mask.requires_grad and mask.dim() in (2, 4)))
    )


@handles(aten.scaled_dot_product_attention.default)
def _without_autograd(func, args, kwargs):
    """In inference mode it arrives below autograd."""
    return attention(*args, **kwargs)
