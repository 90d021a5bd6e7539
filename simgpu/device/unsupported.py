"""What is refused in one line: names of ``torch.cuda`` that ``torch.sim`` lacks, with what is there instead; sparse,
quantised and nested tensors; and tensors for other processes.
"""

from multiprocessing.reduction import ForkingPickler

import torch

from simgpu.device.dispatch import handles
from simgpu.device.tensor import SimTensor, refusal

aten = torch.ops.aten
_libraries = []

_TYPES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
_INSTEAD_OF = {
    "use torch.tensor(..., dtype=..., device=...)": " ".join(f"{t}Tensor {t}Storage" for t in _TYPES.split()),
    "use simgpu.one_launch(), which costs the host the one launch of a graph's replay": (
        "graph graphs CUDAGraph graph_pool_handle make_graphed_callables export_dot export_graph_data graph_annotations"
    ),
    "use simgpu.trace(), whose busy_seconds() tells how long each GPU worked": "utilization memory_usage",
    "use simgpu.machine().gpu, which tells the hardware's published figures": ("clock_rate power_draw temperature"),
    "use memory_stats or memory_summary": (
        "list_gpu_processes memory_snapshot memory_stats_as_nested_dict _record_memory_history _snapshot _dump_snapshot"
    ),
    "use simgpu.enable(memory=...)": "get_per_process_memory_fraction set_per_process_memory_fraction",
    "use simgpu.testing.costs(), which counts the waits of the host": "get_sync_debug_mode set_sync_debug_mode",
    "use Stream, of which the simulated clock makes any number": (
        "ExternalStream GreenContext StreamContext get_stream_from_external"
    ),
    "memory comes from the host and goes back at once, by no allocator of the GPU's": (
        "CUDAPluggableAllocator MemPool caching_allocator_alloc caching_allocator_delete "
        "caching_allocator_disabled caching_allocator_enable change_current_allocator "
        "use_mem_pool"
    ),
    "pinned memory is the host's ordinary memory, which nobody counts": (
        "host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats "
        "reset_peak_host_memory_stats"
    ),
    "the CPU computes, by no library of CUDA's": (
        "CudaError DeferredCudaCallError cudaStatus current_blas_handle "
        "current_solver_handle gds get_gencode_flags has_half has_magma jiterator nccl sparse "
        "tunable"
    ),
}
INSTEAD = {name: sentence for sentence, names in _INSTEAD_OF.items() for name in names.split()}


def unavailable(name):
    """Return the sentence about a name of torch.cuda's."""
    return f"a simulated GPU has no torch.cuda.{name}: {INSTEAD[name]}"


def unavailable_class(name):
    """Return a class that stands for a name of torch.cuda's, and raises NotImplementedError when it is called."""

    def new(cls, *args, **kwargs):
        raise NotImplementedError(unavailable(name))

    # Where dynamo of torch 2.15 looks for what a decorator wraps.
    return type(
        name, (), {"__new__": new, "__doc__": unavailable(name), "__wrapped__": new, "__module__": "torch.cuda"}
    )


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
