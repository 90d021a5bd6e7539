"""Simulated GPUs under the name of CUDA's: what `simgpu.as_cuda` replaces in torch, and puts back.

    programs say     "cuda:1", torch.device("cuda", 1), torch.cuda.*         ──►  sim:1, torch.sim.*
    programs see     x.device of type cuda, x.is_cuda                        ◄──  a tensor on sim:1

"cuda:1" is a device to every build of torch, it only has no tensors. So the functions that take a device are given a
simulated one instead, and the attributes that name a device name one of CUDA. torch.device itself makes devices as it
always does, but those of a number alone, which are CUDA's.
"""

import contextlib
import functools
import warnings
import zlib

import torch
from torch._subclasses import FakeTensor
from torch.distributed import distributed_c10d
from torch.nn.parallel import _functions
from torch.utils import _device

from simgpu.accounting.allocator import Allocator
from simgpu.device import api, factories, signals, unsupported
from simgpu.device.properties import Properties
from simgpu.device.random import SimGenerator
from simgpu.device.state import state, to_sim
from simgpu.device.streams import Event, Stream
from simgpu.device.tensor import SimTensor
from simgpu.torch_glue import legacy
from simgpu.torch_glue.features import FACTORIES
from simgpu.torch_glue.install import replaced
from simgpu.torch_glue.nccl import ProcessGroupNCCL
from simgpu.torch_glue.redirect import in_cudas_words, original

_MODULES = (torch.cuda, torch.cuda.memory, torch.cuda.random, torch.cuda.streams)
_TAKERS = {  # of a device, by their owner
    torch: {function.__name__ for function in _device._device_constructors()}.union(
        FACTORIES, ("normal", "is_autocast_enabled", "set_autocast_enabled", "get_autocast_dtype", "set_autocast_dtype")
    ),
    torch.fft: ("fftfreq", "rfftfreq"),
    torch.Tensor: (
        "to",
        "new",
        "new_empty",
        "new_empty_strided",
        "new_full",
        "new_ones",
        "new_tensor",
        "new_zeros",
        "pin_memory",
        "is_pinned",
        "_make_wrapper_subclass",
    ),
    torch._C: ("_is_autocast_available",),
    torch.UntypedStorage: ("__new__", "to"),
    torch.TypedStorage: ("to",),
    FakeTensor: ("__new__", "_normalize_fake_device"),  # autograd in C++ ends the process over one on cuda
    _device.DeviceContext: ("__init__",),
}

_DEVICE = torch.device
_CUDA = "13.0"
_CUDNN = 92000  # of torch's wheels for that CUDA
_NCCL = 2, 28, 3  # of the line whose figures the clock's collectives have
_to_put_back = contextlib.ExitStack()


class AsCuda(contextlib.ContextDecorator):
    """See `simgpu.as_cuda`; what the first to come replaces, as one of several ranks, the last to leave puts back.

    A class, as a generator that nobody keeps would end at once.
    """

    def __enter__(self):
        if not state.as_cuda:
            with contextlib.ExitStack() as stack:
                stack.callback(signals.restore, signals.in_use(signals.SIGINT))
                stack.enter_context(replaced(_entries()))
                stack.enter_context(_renamed())
                stack.enter_context(_kernels())
                _to_put_back.push(stack.pop_all())
        state.as_cuda += 1

    def __exit__(self, *error):
        leave(max(0, state.as_cuda - 1))


def leave(count):
    """Let `simgpu.as_cuda` hold at most `count` times."""
    if state.as_cuda > count:
        state.as_cuda = count
        if not count:
            _to_put_back.close()


@contextlib.contextmanager
def _renamed():
    """Let our classes print as those for which they stand."""
    names = {
        SimTensor: ("torch", "Tensor"),
        Stream: ("torch.cuda", "Stream"),
        Event: ("torch.cuda", "Event"),
        SimGenerator: ("torch._C", "Generator"),
        Properties: ("torch.cuda", "_CudaDeviceProperties"),
    }
    before = {kind: (kind.__module__, kind.__qualname__) for kind in names}
    _name(names)
    try:
        yield
    finally:
        _name(before)


def _name(names):
    for kind, (module, name) in names.items():
        kind.__module__, kind.__qualname__ = module, name


@contextlib.contextmanager
def _kernels():
    """Make tensors for torch's own functions too, of which a program took hold before: ``from torch import zeros``."""
    library = torch.library.Library("aten", "IMPL", "CUDA")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # builds with CUDA have kernels there, and warn
        for name, kernel in factories.KERNELS.items():
            library.impl(name, _translating(kernel))
    try:
        yield
    finally:
        library._destroy()


def _entries():
    """Yield (owner, name, what takes its place)."""
    for module in _MODULES:
        for name in vars(module):
            if callable(getattr(api, name, None)):
                yield module, name, getattr(api, name)
    for name in unsupported.INSTEAD:
        for owner in (torch.cuda, torch.cuda.memory):
            if callable(getattr(owner, name, None)):
                yield owner, name, unsupported.unavailable_class(name)
    yield from legacy.entries()
    yield from _classes()
    yield torch.version, "cuda", _CUDA
    for name in torch.cuda.nvtx.__all__:
        yield torch.cuda.nvtx, name, getattr(api.nvtx, name)
    yield torch, "device", Device
    yield Allocator, "platform", "CUDA"
    yield torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype("sim")
    yield torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype("sim", dtype)
    yield torch.cuda, "_initialized", True
    yield torch.cuda, "_lazy_init", api.init
    yield torch.cuda, "default_generators", api.default_generators
    for owner, names in _TAKERS.items():
        for name in names:
            if hasattr(owner, name):
                static = isinstance(vars(owner).get(name), staticmethod)
                new = _translating(original(owner, name))
                yield owner, name, staticmethod(new) if static else new
    yield torch.Tensor, "cuda", _translating(torch.Tensor.sim)
    yield torch.Tensor, "type", _type_of
    for owner in (torch.Tensor, SimGenerator, Stream, torch.UntypedStorage, FakeTensor):
        yield owner, "device", property(_shown(owner.device.__get__))
    yield _functions, "_get_stream", _stream_of
    for name in ("lstm", "gru", "rnn_tanh", "rnn_relu"):
        yield torch._VF, name, in_cudas_words(getattr(torch._VF, name))
    yield torch.serialization, "_validate_device", in_cudas_words(original(torch.serialization, "_validate_device"))
    for owner, name in ((torch, "get_default_device"), (torch._C, "_get_accelerator")):
        yield owner, name, _shown(original(owner, name))
    own = torch.Tensor.device.__get__
    for question in ("is_cuda", "is_sim"):
        yield torch.Tensor, question, property(lambda tensor: own(tensor).type in ("sim", "cuda"))  # cuda: traced


def _classes():
    """Yield the same for classes, which programs may have imported before by their names, and for cuDNN and NCCL."""
    for kind, ours in ((torch.cuda.Stream, Stream), (torch.cuda.Event, Event)):
        yield kind, "__new__", _making(ours)
        yield ours, "known_as", kind
    yield torch.cuda.CUDAGraph, "__new__", _making(unsupported.unavailable_class("CUDAGraph"))
    yield torch._C._distributed_c10d, "_hash_tensors", lambda tensors: zlib.crc32(str(tensors).encode())  # for logs
    yield torch.backends.cudnn, "version", lambda: _CUDNN
    yield torch.backends.cudnn, "is_acceptable", lambda tensor: False  # weights of an LSTM stay as they are
    yield torch.cuda.nccl, "version", lambda: _NCCL
    yield distributed_c10d, "_NCCL_AVAILABLE", True
    for owner in (distributed_c10d, torch.distributed):
        yield owner, "ProcessGroupNCCL", ProcessGroupNCCL


class _DeviceType(type):
    """The type of `Device`, which programs take for torch's own class in every other way."""

    def __call__(cls, *args, **options):
        made = _DEVICE(*args, **options)
        named = (args and not isinstance(args[0], int)) or "type" in options
        return made if named or made.type != "sim" else as_shown(made)

    def __instancecheck__(cls, thing):
        return isinstance(thing, _DEVICE)

    def __subclasscheck__(cls, kind):
        return issubclass(kind, _DEVICE)

    def __eq__(cls, other):
        return other is cls or other is _DEVICE

    def __hash__(cls):
        return hash(_DEVICE)

    def __repr__(cls):
        return repr(_DEVICE)


class Device(metaclass=_DeviceType):
    """Stands for torch.device, whose ``torch.device(1)`` asks C++ code for the device type that has the numbers."""


Device.__name__, Device.__qualname__, Device.__module__ = "device", "device", "torch"


@functools.cache  # torch.jit keeps those of its own functions, by their addresses
def _translating(function):
    """Return `function` of a device, which takes cuda for sim."""

    @functools.wraps(function)
    def translated(*args, **kwargs):
        return function(*map(to_sim, args), **{name: to_sim(value) for name, value in kwargs.items()})

    return translated


def _making(ours):
    """Return the ``__new__`` of a class of torch.cuda's, which makes one of ours."""
    return staticmethod(lambda cls, *args, **options: ours(*args, **options))


def _shown(own):
    """Return the function that names a device, which says cuda for sim."""
    return lambda *thing: as_shown(own(*thing))


def as_shown(device):
    """Return the device of CUDA's by whose name a simulated one goes, or the device itself."""
    return _DEVICE(str(device).replace("sim", "cuda"))


def _type_of(tensor, dtype=None, *args, own=torch.Tensor.type, **kwargs):
    """Return ``x.type()``, by its name of CUDA's, or ``x.type("torch.cuda.HalfTensor")``; types are said as strings."""
    if dtype is None:
        return own(tensor).replace(".sim.", ".cuda.")
    if isinstance(dtype, (str, legacy.TensorType)):
        dtype = str(dtype).replace(".cuda.", ".sim.")
    return own(tensor, dtype, *args, **kwargs)


_get_stream = original(_functions, "_get_stream")


def _stream_of(device):
    """nn.parallel makes devices of numbers, which C++ takes for those of the device type that it knows."""
    return _get_stream(as_shown(device))
