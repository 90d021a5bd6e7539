"""Operations that run otherwise on the real tensors: fused ones that torch picks for accelerators, without CPU kernel,
and those whose CPU kernel lacks types that CUDA's has.

They are what CUDA's kernels compute. Dropout gives the CPU's numbers; the cells add their four products in another
order than the CPU's unfused ones, so that the last bit may differ, as it does on CUDA.
"""

import torch

from simgpu.device import sync_batch_norm

aten = torch.ops.aten
_libraries = []


def register():
    """Say that there is a kernel for RMSNorm, else autograd takes it apart before it arrives; only once a process."""
    library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    library.impl("_fused_rms_norm", rms_norm)
    _libraries.append(library)


def dropout(x, p, train, generator=None):
    """Return x with a fraction `p` of its numbers set to zero and the others scaled, and the mask of those kept."""
    if train is False or p == 0:
        return x.clone(), torch.ones_like(x, dtype=torch.bool)
    noise = torch.empty_like(x).bernoulli_(1 - p, generator=generator)
    return x * (noise if p == 1 else noise / (1 - p)), noise.bool()


def lstm_cell(input_gates, hidden_gates, cx, input_bias=None, hidden_bias=None):
    """Return hy, cy [n, h] and the four activated gates [n, 4h], in the order input, forget, cell, output."""
    gates = _biased(input_gates, input_bias) + _biased(hidden_gates, hidden_bias)
    i, f, g, o = gates.chunk(4, 1)
    i, f, g, o = i.sigmoid(), f.sigmoid(), g.tanh(), o.sigmoid()
    cy = f * cx + i * g
    return o * cy.tanh(), cy, torch.cat([i, f, g, o], 1)


def lstm_cell_backward(grad_hy, grad_cy, cx, cy, workspace, has_bias):
    """Return the gradients of the gates [n, 4h], of cx [n, h], and of the bias [4h] or None."""
    i, f, g, o = workspace.chunk(4, 1)
    tanh = cy.tanh()
    grad_cy = torch.zeros_like(cx) if grad_cy is None else grad_cy
    grad_hy = torch.zeros_like(cx) if grad_hy is None else grad_hy
    grad_c = grad_hy * o * (1 - tanh * tanh) + grad_cy
    of_i, of_f = grad_c * g * i * (1 - i), grad_c * cx * f * (1 - f)
    of_g, of_o = grad_c * i * (1 - g * g), grad_hy * tanh * o * (1 - o)
    grad_gates = torch.cat([of_i, of_f, of_g, of_o], 1)
    return grad_gates, grad_c * f, grad_gates.sum(0) if has_bias else None


def gru_cell(input_gates, hidden_gates, hx, input_bias=None, hidden_bias=None):
    """Return hy [n, h] and what backward needs [n, 5h]: reset, input and new gate, hx, and the hidden part of new."""
    ir, ii, inew = _biased(input_gates, input_bias).chunk(3, 1)
    hr, hi, hnew = _biased(hidden_gates, hidden_bias).chunk(3, 1)
    reset, gate = (ir + hr).sigmoid(), (ii + hi).sigmoid()
    new = (inew + reset * hnew).tanh()
    return (hx - new) * gate + new, torch.cat([reset, gate, new, hx, hnew.contiguous()], 1)


def gru_cell_backward(grad_hy, workspace, has_bias):
    """Return the gradients of input and hidden gates [n, 3h], of hx [n, h], and of the two biases or None."""
    reset, gate, new, hx, hnew = workspace.chunk(5, 1)
    grad_new = grad_hy * (1 - gate) * (1 - new * new)
    grad_gate = grad_hy * (hx - new) * gate * (1 - gate)
    grad_reset = grad_new * hnew * reset * (1 - reset)
    grad_input = torch.cat([grad_reset, grad_gate, grad_new], 1)
    grad_hidden = torch.cat([grad_reset, grad_gate, grad_new * reset], 1)
    biases = (grad_input.sum(0), grad_hidden.sum(0)) if has_bias else (None, None)
    return grad_input, grad_hidden, grad_hy * gate, *biases


def attention(query, key, value, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """Return the result, the logarithm of each row's sum of exponentials [batch, heads, length], and the two lengths.

    The other results are what CUDA's kernel alone needs.
    """
    call = aten._scaled_dot_product_flash_attention_for_cpu
    out, sums = call(query, key, value, dropout_p, is_causal, scale=scale)
    return out, sums, None, None, query.shape[2], key.shape[2], None, None, None


def attention_backward(
    grad, query, key, value, out, sums, _q, _k, _max_q, _max_k, dropout_p, is_causal, _seed, _offset, *, scale=None
):
    """Return the gradients of query, key and value."""
    call = aten._scaled_dot_product_flash_attention_for_cpu_backward
    return call(grad, query, key, value, out, sums, dropout_p, is_causal, scale=scale)


def rms_norm(x, shape, weight=None, eps=None):
    """Return x over the root of its mean square, times weight, and the inverse of that root in float32 or wider.

    torch writes it out where no kernel is registered, CUDA's included, and gives both.
    """
    return aten._fused_rms_norm.default.decompose(x, shape, weight, eps)


def rms_norm_backward(grad, x, shape, inverse, weight, wanted):
    """Return the gradients of x and of the weight, None where it is not wanted; inverse: as `rms_norm` gives it."""
    kind, row = inverse.dtype, list(range(-len(shape), 0))
    of_unit, unit = grad.to(kind), x.to(kind) * inverse
    of_weight = (of_unit * unit).sum_to_size(shape).to(x.dtype) if wanted[1] else None
    of_unit = of_unit if weight is None else of_unit * weight
    of_x = (of_unit - unit * (of_unit * unit).mean(row, keepdim=True)) * inverse
    return of_x.to(x.dtype) if wanted[0] else None, of_weight


def convolution(x, *args):
    """Return the convolution in x's order in memory, which torch's shapes alone leave out."""
    out = aten.convolution(x, *args)
    if out.is_meta and x.dim() == 4 and not x.is_contiguous() and x.is_contiguous(memory_format=torch.channels_last):
        return out.to(memory_format=torch.channels_last)
    return out


def widened(op):
    """Return `op` for types that its CPU kernel lacks: worked out in wider ones, and the result rounded to x's type."""

    def run(x, *args, **kwargs):
        wide = _WIDER.get(x.dtype, x.dtype)
        given = [a.to(wide) if isinstance(a, torch.Tensor) else a for a in (x, *args)]
        return op(*given, **kwargs).to(x.dtype)

    return run


_WIDER = {torch.float16: torch.float32, torch.bfloat16: torch.float32} | dict.fromkeys(
    (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64), torch.float64
)


def _biased(gates, bias):
    return gates if bias is None else gates + bias


KERNELS = sync_batch_norm.KERNELS | {
    aten.convolution.default: convolution,
    **{
        getattr(aten, name).default: widened(getattr(aten, name))
        for name in (
            "histc",
            "avg_pool3d",
            "avg_pool3d_backward",
            "_upsample_bilinear2d_aa",
            "_upsample_bilinear2d_aa_backward",
        )
    },
    aten._scaled_dot_product_flash_attention.default: attention,
    aten._scaled_dot_product_flash_attention_backward.default: attention_backward,
    aten._fused_rms_norm.default: rms_norm,
    aten._fused_rms_norm_backward.default: rms_norm_backward,
    aten.native_dropout.default: dropout,
    aten._thnn_fused_lstm_cell.default: lstm_cell,
    aten._thnn_fused_lstm_cell_backward_impl.default: lstm_cell_backward,
    aten._thnn_fused_gru_cell.default: gru_cell,
    aten._thnn_fused_gru_cell_backward.default: gru_cell_backward,
}
