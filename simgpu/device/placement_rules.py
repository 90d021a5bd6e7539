"""Which devices an operation's tensors may be on, as CUDA's kernels have it, and the sentences when they are not."""

import torch

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor, refusal

aten = torch.ops.aten

# Besides the operations tagged pointwise: these take a host tensor with no dimensions.
_SCALARS = {
    "fill",
    "fill_",
    "masked_fill",
    "masked_fill_",
    "index_fill",
    "index_fill_",
    "where",
    "lerp",
    "lerp_",
    "index_put",
    "index_put_",
    "_index_put_impl_",
    "linspace",
    "logspace",
    "full",
    "isin",
    "searchsorted",
    "bucketize",
    "clamp",
    "clamp_",
    "clamp_min",
    "clamp_max",
    "rsub",
    "scatter",
    "_efficientzerotensor",
}
# These take host tensors of any shape under these names.
_ON_HOST = {
    "index": {"indices"},
    "index_put": {"indices"},
    "index_put_": {"indices"},
    "_index_put_impl_": {"indices"},
    "_unsafe_index": {"indices"},
    "_unsafe_index_put": {"indices"},
    "_pack_padded_sequence": {"lengths"},
    "_pack_padded_sequence_backward": {"batch_sizes"},
}
INDEXING = {bare for bare, allowed in _ON_HOST.items() if allowed == {"indices"}}
# Views that Python's indexing makes, one part of a tensor each. The clock charges the host for them; other views are in
# what it charges for the operation beside them.
PARTS = {"select", "slice"}
# Operations that change a tensor's shape or storage without the tag that says so.
RESHAPES = {"aten::resize_", "aten::resize_as_", "aten::set_"}
# Operations that draw random numbers for dropout alone, which they do not do here.
DRAW_NOTHING = {"_scaled_dot_product_flash_attention"}
# Products that CUDA has no kernels of for whole numbers, by the names in its messages: ATen/native/cuda/Blas.cpp.
NO_WHOLE_NUMBERS = {
    aten.mm: "addmm_cuda",
    aten.addmm: "addmm_cuda",
    aten.addmm_: "addmm_cuda",
    aten.bmm: "baddbmm_cuda",
    aten.baddbmm: "baddbmm_cuda",
    aten.mv: "addmv_impl_cuda",
    aten.addmv: "addmv_impl_cuda",
    aten.dot: "dot",
}
# Others whose tensors have one type of number: torch's kernels for shapes alone do not look.
_ONE_TYPE = {
    aten.convolution,
    aten.index_add,
    aten.index_add_,
    aten.index_copy,
    aten.index_copy_,
    aten.index_put,
    aten.index_put_,
    aten._index_put_impl_,
    aten.binary_cross_entropy,
}
# Results that stay on the host, by place.
RESULTS_ON_HOST = {"_pack_padded_sequence": {1}}


def is_tensors(value):
    """Return whether a value is a list of tensors that is not empty."""
    return isinstance(value, (list, tuple)) and bool(value) and isinstance(value[0], torch.Tensor)


def spread(args):
    """Return whether lists of tensors go over several simulated GPUs."""
    return len({t._index for a in args if is_tensors(a) for t in a if type(t) is SimTensor}) > 1


def one_by_one(func, args, kwargs):
    """Run a ``_foreach_`` operation whose lists go over several devices place by place, as CUDA's slow path does."""
    length = len(next(a for a in args if is_tensors(a)))
    results = [
        func(*(a[i : i + 1] if isinstance(a, (list, tuple)) and len(a) == length else a for a in args), **kwargs)
        for i in range(length)
    ]
    return None if results[0] is None else [r[0] for r in results]


def name(func):
    """Return the bare name of an operation: ``add`` for ``aten.add.Tensor``."""
    return func._schema.name.split("::")[1]


def check_hosts(func, args, kwargs):
    """Raise the error for a host tensor among the operands unless the operation allows it there."""
    bare = name(func)
    allowed = _ON_HOST.get(bare, ())
    scalars = torch.Tag.pointwise in func.tags or bare in _SCALARS or bare.startswith(("_foreach_", "_fused_"))
    for argument, tensor in _operands(func, args, kwargs):
        if type(tensor) is SimTensor or argument.name in allowed:
            continue
        written = argument.alias_info is not None and argument.alias_info.is_write
        if bare.startswith("_foreach_") and argument.name == "scalars":
            continue
        if tensor.device.type != "cpu" or written or not scalars or tensor.dim() > 0:
            mixed(func, args, kwargs)


def type_rule(packet):
    """Return the function of an operation's operands that raises where CUDA refuses their types, or None."""
    kernel, one_type = NO_WHOLE_NUMBERS.get(packet), packet in NO_WHOLE_NUMBERS or packet in _ONE_TYPE

    def rule(reals):
        if kernel and not (reals[1].is_floating_point() or reals[1].is_complex()):
            kind = reals[1].type().rpartition(".")[2].removesuffix("Tensor")
            raise NotImplementedError(f"\"{kernel}\" not implemented for '{kind}'")
        if state.real_device.type == "meta":  # elsewhere the CPU's kernel raises, as CUDA's does
            types = {x.dtype: None for x in reals if isinstance(x, torch.Tensor) and x.is_floating_point()}
            if len(types) > 1:
                listed = " != ".join(str(dtype).removeprefix("torch.") for dtype in types)
                raise RuntimeError(f"{packet.__name__}: expected tensors of the same dtype, but got: {listed}")

    return rule if one_type else None


def masks_are_counted(func, args):
    """Return whether the host waits for an indexing until the mask's true elements are counted.

    Not where one number is assigned: then CUDA fills what the mask covers.
    """
    masks = any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])
    return masks and (name(func) in ("index", "_unsafe_index") or args[2].numel() != 1)


def bring_indices(indices, index):
    """Report the copies of the host's indices to the device, for which the host waits as for all pageable memory."""
    for tensor in indices:
        if tensor is not None and type(tensor) is not SimTensor:
            state.clock.copy(None, index, tensor.nbytes, False, True)


def mixed(func, args, kwargs):
    """Raise the error for operands on different devices, with the sentence that CUDA has for this operation."""
    for _, tensor in _operands(func, args, kwargs):
        if tensor.layout is not torch.strided:
            raise refusal(str(tensor.layout).removeprefix("torch."))
    anywhere = _ON_HOST.get(name(func), ())
    operands = [
        (argument.name, tensor.device)
        for argument, tensor in _operands(func, args, kwargs)
        if argument.name not in anywhere or tensor.device.type != "cpu"
    ]
    first = next(device for _, device in operands if device.type != "cpu")
    other = next((pair for pair in operands if pair[1] != first), None)
    if name(func) in INDEXING and other[0] != "values":
        raise RuntimeError(
            f"indices should be either on cpu or on the same device as the indexed tensor ({args[0].device})"
        )
    start = "Expected all tensors to be on the same device, but "
    if torch.Tag.pointwise in func.tags:
        raise RuntimeError(f"{start}found at least two devices, {first} and {other[1]}!")
    raise RuntimeError(
        f"{start}got {other[0]} is on {other[1]}, different from other tensors on {first} "
        f"(when checking argument in method wrapper_{'CUDA' if state.as_cuda else 'sim'}_{name(func)})"
    )


def _operands(func, args, kwargs):
    """Yield each tensor of a call with its argument in the schema."""
    for place, argument in enumerate(func._schema.arguments):
        value = args[place] if place < len(args) else kwargs.get(argument.name)
        for tensor in value if isinstance(value, (list, tuple)) else (value,):
            if isinstance(tensor, torch.Tensor):
                yield argument, tensor
