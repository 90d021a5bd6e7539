"""``torch.autocast("sim")``: which operations run in low precision, which in float32, as on CUDA.

torch has the mechanism for every device type but leaves the lists to it. These are CUDA's, from ATen/autocast_mode.h.
Each of these operations gets a kernel that converts its arguments and calls it again with autocast left out. CUDA's are
of C++, so that a conversion costs the simulated host what autograd's operations do, not Python's.
"""

from contextlib import nullcontext

import torch
from torch.utils._pytree import tree_leaves, tree_map

from simgpu.device.state import state

_KEY = torch._C.DispatchKey.AutocastPrivateUse1
_LOW_TYPES = (torch.float16, torch.bfloat16)
_libraries = []


def register():
    """Install the kernels; only once a process."""
    others = torch.library.Library("_", "IMPL", "AutocastPrivateUse1")
    others.fallback(torch.library.fallthrough_kernel)
    library = torch.library.Library("aten", "IMPL", "AutocastPrivateUse1")
    _libraries.extend([others, library])
    for convert, names in _LISTS.items():
        for name in names.split():
            _install(library, name, convert)


def enabled(real):
    """Without a device type the question means CUDA; `parallel_apply` asks so, whatever its devices are."""

    def is_autocast_enabled(*args):
        return real("sim") if not args and state.is_accelerator else real(*args)

    return is_autocast_enabled


def _install(library, name, convert):
    packet, _, overload = name.partition(".")
    if not hasattr(torch.ops.aten, packet):
        return  # not in this version of torch
    operation = getattr(getattr(torch.ops.aten, packet), overload or "default")

    def kernel(*args, **kwargs):
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_KEY)):
            with state.clock.from_cpp() if state.clock is not None else nullcontext():
                args, kwargs = convert(args, kwargs)
            return operation(*args, **kwargs)

    library.impl(name, kernel)


def _floating(x):
    return isinstance(x, torch.Tensor) and x.is_floating_point() and x.dtype != torch.float64 and x.is_sim


def _low(*arguments):
    """Convert to the low precision that autocast was entered with."""
    dtype = torch.get_autocast_dtype("sim")
    return tree_map(lambda x: x.to(dtype) if _floating(x) else x, arguments)


def _float32(*arguments):
    """Convert from low precision to float32."""
    return tree_map(lambda x: x.float() if _floating(x) else x, arguments)


def _float32_result(args, kwargs):
    """Ask for a float32 result where the operand is in low precision and no type was asked for."""
    asked = kwargs.get("dtype") is not None or any(isinstance(a, torch.dtype) for a in args)
    if not asked and _floating(args[0]) and args[0].dtype in _LOW_TYPES:
        kwargs = {**kwargs, "dtype": torch.float32}
    return args, kwargs


def _unsafe(*arguments):
    """Refuse, as CUDA does: low precision loses what this loss needs."""
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast: use "
        "binary_cross_entropy_with_logits or BCEWithLogitsLoss, without the sigmoid before it"
    )


def _widest(*arguments):
    """Convert to float32 if one operand is, so that the types agree."""
    mixed = any(_floating(x) and x.dtype == torch.float32 for x in tree_leaves(arguments))
    return _float32(*arguments) if mixed else arguments


_LISTS = {
    _low: """_convolution.deprecated _convolution conv1d conv2d conv3d conv_tbc conv_transpose1d conv_transpose2d.input
        conv_transpose3d.input convolution prelu addmm addmv addr matmul einsum mm mv linalg_vecdot linear addbmm
        baddbmm bmm chain_matmul linalg_multi_dot _thnn_fused_lstm_cell _thnn_fused_gru_cell lstm_cell gru_cell
        rnn_tanh_cell rnn_relu_cell scaled_dot_product_attention""",
    _float32: """acos asin cosh erfinv exp expm1 log log10 log2 log1p reciprocal rsqrt sinh tan pow.Tensor_Scalar
        pow.Tensor_Tensor pow.Scalar softplus layer_norm native_layer_norm rms_norm group_norm frobenius_norm.dim
        nuclear_norm nuclear_norm.dim cosine_similarity poisson_nll_loss cosine_embedding_loss nll_loss nll_loss2d
        hinge_embedding_loss kl_div l1_loss smooth_l1_loss huber_loss mse_loss margin_ranking_loss
        multilabel_margin_loss soft_margin_loss triplet_margin_loss multi_margin_loss
        binary_cross_entropy_with_logits dist pdist cdist renorm logsumexp upsample_nearest1d
        _upsample_nearest_exact1d upsample_nearest2d _upsample_nearest_exact2d upsample_nearest3d
        _upsample_nearest_exact3d upsample_linear1d upsample_bilinear2d _upsample_bilinear2d_aa upsample_trilinear3d
        upsample_bicubic2d _upsample_bicubic2d_aa""",
    _float32_result: """prod prod.dim_int softmax.int log_softmax.int cumprod cumsum linalg_vector_norm
        linalg_matrix_norm linalg_matrix_norm.str_ord sum sum.dim_IntList""",
    _unsafe: "binary_cross_entropy",
    _widest: "addcdiv addcmul atan2 bilinear cross dot vdot grid_sampler index_put tensordot scatter_add",
}
