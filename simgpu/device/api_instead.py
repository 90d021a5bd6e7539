"""What torch.cuda has and torch.sim does without, as one table of what is there instead; its two small modules."""

import contextlib
from functools import partial
from types import SimpleNamespace

import torch

_TYPES = "BFloat16 Bool Byte Char ComplexDouble ComplexFloat Double Float Half Int Long Short"
_TABLE = {
    'use torch.tensor(..., dtype=..., device="sim")': " ".join(f"{t}Tensor {t}Storage" for t in _TYPES.split()),
    "use simgpu.one_launch(), which costs the host the one launch of a graph's replay": (
        "graph graphs CUDAGraph graph_pool_handle make_graphed_callables"
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
        "caching_allocator_disabled caching_allocator_enable change_current_allocator get_allocator_backend "
        "use_mem_pool"
    ),
    "pinned memory is the host's ordinary memory, which nobody counts": (
        "host_memory_stats host_memory_stats_as_nested_dict reset_accumulated_host_memory_stats "
        "reset_peak_host_memory_stats"
    ),
    "the CPU computes, by no library of CUDA's": (
        "CudaError DeferredCudaCallError check_error cudaStatus cudart current_blas_handle "
        "current_solver_handle gds get_gencode_flags has_half has_magma jiterator nccl profiler sparse "
        "tunable"
    ),
}
INSTEAD = {name: sentence for sentence, names in _TABLE.items() for name in names.split()}


def refusal(name):
    """Return the sentence about a name of torch.cuda's."""
    return f"a simulated GPU has no torch.cuda.{name}: {INSTEAD[name]}"


def refused(name):
    """Return a class that stands for a name of torch.cuda's, and raises NotImplementedError when it is called."""

    def new(cls, *args, **kwargs):
        raise NotImplementedError(refusal(name))

    # Where dynamo of torch 2.15 looks for what a decorator wraps.
    return type(name, (), {"__new__": new, "__doc__": refusal(name), "__wrapped__": new})


amp = SimpleNamespace(
    autocast=partial(torch.autocast, "sim"),
    GradScaler=partial(torch.amp.GradScaler, "sim"),
    custom_fwd=partial(torch.amp.custom_fwd, device_type="sim"),
    custom_bwd=partial(torch.amp.custom_bwd, device_type="sim"),
)


def _nothing(*args, **kwargs):
    """Do nothing, as NVTX does where no profiler of NVIDIA's listens."""
    return 0


@contextlib.contextmanager
def _range(message, *args, **kwargs):
    yield


nvtx = SimpleNamespace(
    mark=_nothing, range=_range, range_push=_nothing, range_pop=_nothing, range_start=_nothing, range_end=_nothing
)
