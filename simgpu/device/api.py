"""``torch.sim``: what ``torch.cuda`` is for NVIDIA's GPUs, with its names and signatures, for simulated ones.

A device is given as an index, a string, a torch.device, or None for the current device. An index that does not exist
raises torch.AcceleratorError with CUDA's sentence.
"""

import contextlib
import sys
from functools import partial
from types import SimpleNamespace
from typing import Any

import torch
from torch.nn.parallel import comm  # noqa: F401 part of torch.sim

from simgpu.accounting import communication
from simgpu.accounting.allocator import Allocator, human
from simgpu.accounting.queues import PS
from simgpu.device import nvtx, unsupported
from simgpu.device import state as current
from simgpu.device.forked import is_forked
from simgpu.device.properties import Properties
from simgpu.device.random import (  # noqa: F401 part of torch.sim
    get_rng_state,
    get_rng_state_all,
    initial_seed,
    manual_seed,
    manual_seed_all,
    seed,
    seed_all,
    set_rng_state,
    set_rng_state_all,
)
from simgpu.device.state import Device, current_device, device_of, index_of, set_device, state  # noqa: F401 part of torch.sim
from simgpu.device.streams import (  # noqa: F401 part of torch.sim
    Event,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

_initialized = True  # only then torch.utils.checkpoint keeps the generators' states for the second forward pass

OutOfMemoryError = torch.OutOfMemoryError
device = current.device
memory = random = streams = sys.modules[__name__]  # torch.cuda's modules, of which this one has all


def __getattr__(name: str) -> Any:
    """Return ``default_generators``, a tuple of as many generators as there are devices now."""
    if name in unsupported.INSTEAD:
        raise AttributeError(unsupported.unavailable(name))
    if name != "default_generators":
        raise AttributeError(f"module 'torch.sim' has no attribute {name!r}")
    return tuple(gpu.generator for gpu in state.gpus)


# -- devices ---------------------------------------------------------------------------------------------------------


def is_available() -> bool:
    """Return whether there is at least one simulated GPU."""
    return bool(state.gpus)


def is_initialized() -> bool:
    """Return True: there is nothing left to start."""
    return True


def init() -> None:
    """Do nothing: simulated GPUs need no start."""


def device_count() -> int:
    """Return the number of simulated GPUs."""
    return len(state.gpus)


def synchronize(device: Device = None) -> None:
    """Wait until all streams of a device have finished."""
    index = index_of(device)
    if state.clock is not None:
        state.clock.synchronize(index)


def _sleep(cycles: float) -> None:
    """Keep the current stream busy for so many cycles of the GPU's clock."""
    if state.clock is not None:
        device = state.current
        begin = communication.depart(state.clock, device)
        took = round(cycles / state.machine.gpu.clock_hz * PS)
        communication.hold(state.clock, state.clock.current_stream(device), begin + took)


def get_device_properties(device: Device = None) -> Properties:
    """Return the `Properties` of a device."""
    index, gpu = index_of(device), state.machine.gpu
    major, minor = gpu.capability
    capacity = state.gpus[index].allocator.capacity
    return Properties(get_device_name(device), major, minor, capacity, gpu.multiprocessors, gpu.l2_bytes, index)


def get_device_capability(device: Device = None) -> tuple[int, int]:
    """Return the compute capability of the hardware that a device stands for, (major, minor)."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Return the names of the architectures there are kernels for: that of the simulated hardware."""
    return ["sm_{}{}".format(*state.machine.gpu.capability)] if state.machine else []


def is_tf32_supported() -> bool:
    """Return whether the hardware that is simulated multiplies matrices of TF32."""
    return state.machine.gpu.peak_tensor_tf32_flops_per_s is not None


def is_current_stream_capturing() -> bool:
    """Return False: what is queued runs, and is not recorded for a graph."""
    return False


def get_device_name(device: Device = None) -> str:
    """Return the name of the hardware that a device stands for, which says that it is simulated."""
    index_of(device)
    return f"Simulated {state.machine.gpu.name}"


def can_device_access_peer(device: Device, peer_device: Device) -> bool:
    """Return whether copies between two different devices need not go through the host."""
    device, peer = index_of(device), index_of(peer_device)
    return device != peer and state.machine.peer(device, peer)


# -- memory ----------------------------------------------------------------------------------------------------------


def _allocator(device: Device) -> Allocator:
    return state.gpus[index_of(device)].allocator


def memory_allocated(device: Device = None) -> int:
    """Return the bytes that tensors on a device use now, each storage rounded up to 512; on a rank, the rank's own."""
    return _allocator(device).use().allocated


def max_memory_allocated(device: Device = None) -> int:
    """Return the most bytes in use since the start or the last `reset_peak_memory_stats`; on a rank, the rank's own."""
    return _allocator(device).use().peak


def device_memory_used(device: Device = None) -> int:
    """Return the bytes in use on a device, those of all ranks together."""
    return _allocator(device).allocated


memory_reserved = memory_cached = memory_allocated  # nothing is kept for later
max_memory_reserved = max_memory_cached = max_memory_allocated


def reset_peak_memory_stats(device: Device = None) -> None:
    """Start looking for the largest use anew."""
    _allocator(device).reset_peak()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Set the numbers of allocations and of failed ones to zero."""
    allocator = _allocator(device)
    allocator.use().count = allocator.failures = 0


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Return the free and the total bytes of a device."""
    allocator = _allocator(device)
    return allocator.free(), allocator.capacity


def memory_stats(device: Device = None) -> dict[str, int]:
    """Return the counts under the names that ``torch.cuda.memory_stats`` has for them."""
    allocator = _allocator(device)
    use = allocator.use()
    now = allocator.blocks()
    ever = max(now, use.count)
    stats = {
        "num_ooms": allocator.failures,
        "num_alloc_retries": 0,
        "active.all.current": now,
        "allocation.all.current": now,
        "allocation.all.allocated": ever,
        "allocation.all.freed": ever - now,
        "inactive_split_bytes.all.current": 0,
        "inactive_split_bytes.all.peak": 0,
    }
    for kind in ("allocated", "reserved", "active"):
        stats |= {f"{kind}_bytes.all.current": use.allocated, f"{kind}_bytes.all.peak": use.peak}
    return stats


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """Return a small table of a device's memory as text."""
    index = index_of(device)
    allocator = state.gpus[index].allocator
    rows = [
        ("In use", allocator.use().allocated),
        ("Most in use", allocator.use().peak),
        ("Free", allocator.free()),
        ("Capacity", allocator.capacity),
    ]
    title = f"Memory of {'cuda' if state.as_cuda else 'sim'}:{index}, {get_device_name(index)}"
    lines = [title, "-" * len(title), *(f"{label:<12}{human(size):>14}" for label, size in rows)]
    if not abbreviated:
        lines += [f"{'Storages':<12}{allocator.blocks():>14}", f"{'Failures':<12}{allocator.failures:>14}"]
    return "\n".join(lines)


def empty_cache() -> None:
    """Do nothing: memory is given back at once."""


ipc_collect = empty_cache


def get_allocator_backend() -> str:
    """Return torch's name for its own caching allocator."""
    return "native"


def cudart() -> SimpleNamespace:
    """Return what programs call of CUDA's runtime: no profiler of NVIDIA's listens."""
    return SimpleNamespace(cudaProfilerStart=nvtx.mark, cudaProfilerStop=nvtx.mark, cudaMemGetInfo=mem_get_info)


def check_error(code: int) -> None:
    """Do nothing: the functions of `cudart` have no errors."""


profiler = SimpleNamespace(start=nvtx.mark, stop=nvtx.mark, profile=contextlib.nullcontext)


def _is_in_bad_fork() -> bool:
    return is_forked()


# -- autocast --------------------------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    """Return the types that ``torch.autocast("sim")`` can use."""
    return [torch.float16, torch.bfloat16, torch.float32]


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """Return whether bfloat16 works: the CPU computes it always, the hardware itself or not at all."""
    return including_emulation or state.machine.gpu.bf16


amp = SimpleNamespace(
    autocast=partial(torch.autocast, "sim"),
    GradScaler=partial(torch.amp.GradScaler, "sim"),
    custom_fwd=partial(torch.amp.custom_fwd, device_type="sim"),
    custom_bwd=partial(torch.amp.custom_bwd, device_type="sim"),
)
