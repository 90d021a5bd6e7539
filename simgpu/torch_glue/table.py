"""Everything that is replaced in torch, and one function of safetensors'. `register` walks it, once in a process.

Kernels that torch lets anyone add for a new device are not among them: those replace nothing. DDP's reducer and logger
are replaced in `ranks.functional`, and more of `torch.distributed` while ranks are simulated: see `ranks.patches`.
"""

from collections import namedtuple
from functools import partial

from simgpu.device.tensor import SimTensor
from simgpu.torch_glue import (
    accelerator,
    backward,
    compiling,
    current,
    lazy,
    parallel,
    parameters,
    pinning,
    profiling,
    safetensors,
    standins,
    storages,
)

Patch = namedtuple("Patch", "owner name make why since")
Patch.__doc__ = """One name of torch that is replaced.

owner: the module or class, as a dotted name, or "aten/KEY" for the kernel of an operation under a dispatch key.
make: what is there -> what takes its place; None stands for a name that this build of torch lacks, where `since` is "".
why: what does not work without. since: the oldest torch, from 2.11 on, in which the name was seen; a torch that lacks
it goes without.
"""
_PINNING = "Python cannot give torch an allocator of pinned memory, so pin_memory=True marks ordinary memory"
_CURRENT = "torch's guard for Python devices always answers 0 when it is asked for the current device"
_STORAGES = "torch's storages know no device made in Python"
_LAZY = "lazy modules have tensors of classes of their own, which simulated GPUs cannot hold"
_HOOKS = "torch makes it in C++, through hooks that Python cannot fill in"
_OBJECTS = "torch changes what a parameter holds only for tensors of one class in C++, and ours are of another"
_DYNAMO = "what traces a program follows tensors of classes it knows, and inductor has no code for other devices"
_PROFILER = "torch's profiler takes a device's events from a library of its maker, and without one says so each time"
_ONE = "torch's C++ takes a registered Python device for the accelerator, and knows only one device of it"
_CUDA_ONLY = "nn.parallel's functions exist in builds with CUDA only, and for real GPUs"


def _pinning():
    for name in pinning.FACTORIES:
        if name != "tensor":
            yield Patch("torch", name, pinning.pinning, _PINNING, "2.11")
    yield Patch("aten/CPU", "_pin_memory", lambda own: pinning.pin_memory, _PINNING, "2.11")
    yield Patch("aten/CPU", "is_pinned", lambda own: pinning.is_pinned, _PINNING, "2.11")


def _current():
    maker = partial(current.filling_in, makes=True)
    yield Patch("torch", "tensor", lambda own: maker(pinning.pinning(own)), f"{_CURRENT}; {_PINNING}", "2.11")
    yield Patch("torch", "as_tensor", maker, _CURRENT, "2.11")
    yield Patch("torch", "asarray", maker, _CURRENT, "2.11")
    yield Patch("torch.Tensor", "to", current.filling_in, _CURRENT, "2.11")


def _accelerator():
    for name, function in accelerator.FUNCTIONS.items():
        yield Patch("torch._C", name, lambda own, function=function: function, _ONE, "2.13")
    # nn.DataParallel imported the function by name.
    for owner in ("torch._utils", "torch.nn.parallel.data_parallel"):
        yield Patch(owner, "_get_available_device_type", accelerator.available_type, _ONE, "2.11")
    yield Patch(
        "torch",
        "is_autocast_enabled",
        accelerator.autocast_enabled,
        "parallel_apply asks without a device type, which means CUDA",
        "2.11",
    )


def _parallel():
    for function in parallel.FUNCTIONS:
        yield Patch("torch._C", function.__name__, partial(parallel.choose, function), _CUDA_ONLY, "")
    yield Patch(
        "torch.cuda.nccl",
        "is_available",
        parallel.nccl_is_available,
        "it warns where torch was built without NCCL",
        "2.11",
    )


def _lazy():
    parameter = "torch.nn.parameter.Uninitialized"
    yield Patch(f"{parameter}TensorMixin", "materialize", lambda own: lazy.materialize, _LAZY, "2.11")
    yield Patch(f"{parameter}TensorMixin", "__torch_function__", lambda own: classmethod(lazy.answer), _LAZY, "2.11")
    yield Patch(f"{parameter}Parameter", "__new__", partial(lazy.making, trained=True), _LAZY, "2.11")
    yield Patch(f"{parameter}Parameter", "__deepcopy__", lambda own: lazy.deepcopy, _LAZY, "2.11")
    yield Patch(f"{parameter}Buffer", "__new__", partial(lazy.making, trained=False), _LAZY, "2.11")


def _others():
    yield Patch("torch.UntypedStorage", "__new__", storages.new, _STORAGES, "2.11")
    yield Patch("torch.UntypedStorage", "device", storages.device, _STORAGES, "2.11")
    yield Patch("torch.UntypedStorage", "resize_", storages.resize_, _STORAGES, "2.11")
    yield Patch("torch.Tensor", "data", parameters.data, _OBJECTS, "2.11")
    yield Patch("torch", "_has_compatible_shallow_copy_type", parameters.compatible, _OBJECTS, "2.11")
    yield Patch("torch.utils", "swap_tensors", parameters.swapping, _OBJECTS, "2.11")
    yield Patch("torch", "compile", compiling.known, _DYNAMO, "2.11")
    yield Patch("torch.fx.experimental.proxy_tensor", "HANDLED_TYPES", lambda own: (*own, SimTensor), _DYNAMO, "2.11")
    yield Patch("torch._TorchCompileInductorWrapper", "__call__", compiling.without_ours, _DYNAMO, "2.11")
    for name, make in (
        ("__init__", profiling.silent),
        ("_start_trace", profiling.begins),
        ("__exit__", profiling.ends),
        ("_parse_kineto_results", profiling.events),
    ):
        yield Patch("torch.autograd.profiler.profile", name, make, _PROFILER, "2.11")
    yield Patch("torch", "Generator", standins.generator, _HOOKS, "2.11")
    yield Patch("torch", "Stream", standins.stream, _HOOKS, "2.11")
    yield Patch("torch", "Event", standins.event, _HOOKS, "2.11")
    yield Patch(
        "torch.autograd.function.BackwardCFunction",
        "apply",
        backward.checking,
        "autograd does not look where the gradient of a tensor made in Python is",
        "2.11",
    )
    for owner in safetensors.owners():
        yield Patch(owner, "safe_open", safetensors.opening, "safetensors knows no device made in Python", "2.11")
    # torch.autograd imported the function by name.
    for owner in ("torch.autograd.graph", "torch.autograd"):
        yield Patch(
            owner,
            "_engine_run_backward",
            backward.on_one_thread,
            "torch's guard for Python devices tells autograd's engine of one device only",
            "2.11",
        )


PATCHES = (*_pinning(), *_current(), *_accelerator(), *_parallel(), *_lazy(), *_others())
