"""The tensor of a simulated GPU: a wrapper that says ``sim:i`` and holds the real tensor, which lies in host memory.

torch hands every operation on a wrapper to `dispatch.dispatch`, below autograd, which runs it on the real tensors. What
is here is the wrapper itself and those methods of torch.Tensor that would read memory without an operation: printing,
numpy, pickling, deepcopy; and its storage, which is of torch's own class, by which torch knows a storage when it saves,
copies and sends one, and carries a label that the methods replaced in `torch_glue` see.
"""

import copy
from collections import OrderedDict

import torch

from simgpu.device.state import real_cuda, state
from simgpu.device.tensor_swap import become

_make, _guard = torch.Tensor._make_wrapper_subclass, torch._C._set_throw_on_mutable_data_ptr
_strided = torch.strided
_inference_mode = torch.is_inference_mode_enabled


class SimTensor(torch.Tensor):
    """A tensor on a simulated GPU: made by ``torch.ones(2, device="sim:0")`` or ``x.to("sim:0")``, never by hand."""

    __torch_function__ = torch._C._disabled_torch_function_impl

    def __new__(cls, data, requires_grad=False):
        """Return the parameter that ``type(p)(data, requires_grad=…)`` asks for, where `p` is one on this device."""
        return torch.nn.Parameter(data, requires_grad)

    @staticmethod
    def __torch_dispatch__(func, types, args=(), kwargs=None):
        """Run one operation; replaced by `dispatch.dispatch` when that module is loaded."""
        raise NotImplementedError

    def __repr__(self, *, tensor_contents=None):
        return text(self)

    def __format__(self, spec):
        return self.item().__format__(spec) if self.dim() == 0 else object.__format__(self, spec)

    def numpy(self, *, force=False):
        """As on CUDA: a TypeError, unless forced to copy."""
        if not force:
            raise TypeError(
                f"can't convert {self.device} device type tensor to numpy. "
                "Use Tensor.cpu() to copy the tensor to host memory first."
            )
        return self.detach().cpu().resolve_conj().resolve_neg().numpy()

    def tolist(self):
        """Copy to the host and return nested lists of numbers, or a number."""
        return self.detach().cpu().tolist()

    def new_tensor(self, data, *, device=None, **options):
        """Return a tensor made of `data`, on this device unless another is given."""
        return torch.Tensor.new_tensor(self, data, device=self.device if device is None else device, **options)

    def new(self, *args, device=None):
        """Return a tensor of this type, on this device unless another is given."""
        shares = bool(args) and isinstance(args[0], (torch.Tensor, torch.UntypedStorage, torch.TypedStorage))
        with torch.sim.device(self._index):
            return torch.Tensor.new(self, *args, **({} if shares else {"device": device or self.device}))

    def as_subclass(self, cls):
        """Refuse all classes but torch.Tensor: what dispatches its operations has a class of its own."""
        if cls is torch.Tensor:
            return torch.ops.aten.alias(self)
        raise NotImplementedError(
            f"expected torch.Tensor itself on {self.device}, got its subclass {cls.__name__}: "
            "simulated GPUs hold no subclasses, so keep it on the CPU"
        )

    def __dlpack__(self, **options):
        """Refuse: no other library knows this device."""
        raise BufferError(f"expected a tensor on the CPU for DLPack, got one on {self.device}: use Tensor.cpu() first")

    __dlpack_device__ = __dlpack__  # asked first

    @property
    def __cuda_array_interface__(self):
        """Refuse: other libraries would take the host's memory for CUDA's."""
        raise AttributeError(f"expected memory of CUDA's, got one on simulated {self.device}: use Tensor.cpu() first")

    def data_ptr(self):
        """Return an address that is unique to these bytes, for comparing."""
        return self._real.data_ptr()

    def record_stream(self, stream):
        """Tell the allocator that work in `stream`, a ``torch.sim.Stream``, uses this memory: `memory_streams`."""
        block = state.gpus[self._index].allocator.block(self._real.untyped_storage())
        if block is not None and stream._queue not in (block.stream, *block.recorded):
            block.recorded.append(stream._queue)

    def untyped_storage(self):
        """Return the storage, which names this device."""
        return storage_of(self)

    @property
    def data(self):
        """The same memory without autograd."""
        return torch.Tensor.data.__get__(self)

    @data.setter
    def data(self, value):
        if type(value) is not SimTensor:
            become(self, value)
            return
        torch.Tensor.data.__set__(self, value)
        self._real, self._index = value._real, value._index

    def __deepcopy__(self, memo):
        if id(self) in memo:
            return memo[id(self)]
        if not self.is_leaf:
            return torch.Tensor.__deepcopy__(self, memo)  # raises torch's error
        new = wrap(copy.deepcopy(self._real, memo), self._index)  # storages that were shared stay shared
        new.requires_grad_(self.requires_grad)
        if self.grad is not None and not getattr(self, "_is_param", False):  # torch's parameters leave it behind
            new.grad = copy.deepcopy(self.grad, memo)
        for name, value in self.__dict__.items():
            if name not in ("_real", "_index"):
                new.__dict__[name] = copy.deepcopy(value, memo)
        memo[id(self)] = new
        return new

    def __coerce_same_metadata_as_tangent__(self, metadata, kind=None):
        """Return the gradient itself, which torch.compile has traced as an ordinary tensor's."""
        return self

    def __reduce_ex__(self, protocol):
        if getattr(self, "_is_param", False):
            plain = self.detach()
            return torch._utils._rebuild_parameter, (plain, self.requires_grad, {})
        if not self.numel():  # torch would take it for one without a storage
            storage = torch.storage.TypedStorage(wrap_storage=self.untyped_storage(), dtype=self.dtype, _internal=True)
            rest = 0, tuple(self.shape), self.stride(), self.requires_grad, OrderedDict()
            return torch._utils._rebuild_tensor_v2, (storage, *rest)
        return self._reduce_ex_internal(protocol)


def wrap(real, index):
    """Return a new tensor on device `index` for a real one, and count its storage.

    Raises:
        torch.OutOfMemoryError: It does not fit.
        NotImplementedError: A layout that is not strided.
    """
    gpu = state.gpus[index]
    new = wrap_counted(real, gpu)
    if state.counting:
        gpu.allocator.add(real.untyped_storage())
    return new


def wrap_counted(real, gpu):
    """Return a new wrapper on `gpu` for a real tensor whose storage is counted already, or will be."""
    out = fresh(real, gpu)
    if real.is_conj() or real.is_neg():  # lazy views, which C++ code asks the wrapper about
        torch._C._set_conj(out, real.is_conj())
        torch._C._set_neg(out, real.is_neg())
    return out


def fresh(real, gpu):
    """As `wrap_counted`, for a tensor that was just computed: no lazy view."""
    if real.layout is not _strided or real.is_quantized:
        raise refusal("quantised" if real.is_quantized else str(real.layout).removeprefix("torch."))
    if _inference_mode() and not real.is_inference():  # a view of a tensor from outside, which stays an ordinary one
        with torch.inference_mode(False):
            return fresh(real, gpu)
    offset = real.storage_offset() or None  # which stands for 0, and is read faster
    out = _make(SimTensor, real.shape, real.stride(), offset, None, real.dtype, _strided, gpu.device)
    _guard(out)  # code in C++ that reads memory gets an error instead of a null pointer
    out._real, out._index = real, gpu.index
    return out


SimTensor.__name__ = "tensor"  # what torch prints in front of the numbers; type(x) still prints SimTensor


def numbers(tensor):
    """Return the real tensor behind a simulated GPU's, or a host tensor itself, for the host to read.

    Raises:
        RuntimeError: Simulated GPUs hold shapes only.
    """
    real = tensor._real if type(tensor) is SimTensor else tensor
    if real.is_meta and state.stand_in:
        return state.stand_in(real)
    if real.is_meta:
        raise RuntimeError(
            "expected numbers, but the simulated GPUs hold shapes only: leave out what reads a tensor, "
            "as print, item and cpu do, or call simgpu.enable without shapes_only"
        )
    return real


def text(tensor):
    """Return what print shows, as torch does for a CUDA tensor: it reads number by number, each time with a wait."""
    if state.stand_in and numbers(tensor) is not tensor._real:
        return f"tensor(..., device='{tensor.device}', size={tuple(tensor.shape)}, dtype={tensor.dtype})"
    numbers(tensor)  # raises where there are none
    is_parameter = getattr(tensor, "_is_param", False)
    shown = torch._tensor_str._str(tensor)
    return f"Parameter containing:\n{shown[len('Parameter(') : -1]}" if is_parameter else shown


def refusal(what):
    """Return the error for a tensor that a simulated GPU cannot hold; `what` says of what kind it is."""
    return NotImplementedError(
        f"expected a dense tensor, got a {what} one: simulated GPUs hold dense tensors only, so keep it on the CPU"
    )


def unshare(tensor):
    """Give a wrapper a real tensor of its own, before its shape changes: after ``detach`` two wrappers share one."""
    tensor._real = tensor._real.detach()


def resync(tensor):
    """Make a wrapper's shape follow its real tensor after an operation that changed it in place."""
    real = tensor._real
    if (
        tensor.shape != real.shape
        or tensor.stride() != real.stride()
        or (tensor.storage_offset() != real.storage_offset())
    ):
        torch.Tensor.data.__set__(tensor, wrap_counted(real, state.gpus[tensor._index]))


# -- storages: bytes in host memory, of torch's own class, labelled with the device that they stand for -------------


def storage_of(tensor):
    """Return the storage of a wrapper, labelled with its device."""
    storage = tensor._real.untyped_storage()
    return storage if hasattr(storage, "_sim") else label(storage, tensor._index)


def label(storage, index):
    """Make a host storage stand for one on device `index`, count it, and return it."""
    if state.counting:
        state.gpus[index].allocator.add(storage)
    storage._sim = index
    return storage


def is_pinned(tensor):
    """Return whether a host tensor lies in pinned memory: real, or marked as such by `torch_glue.pinning`."""
    return getattr(tensor.untyped_storage(), "_sim_pinned", False) or (real_cuda() and tensor.is_pinned())


def storage_id(tensor: torch.Tensor) -> int:
    """Return a number that all views of a tensor, simulated or real, have in common while its storage lives."""
    return getattr(tensor, "_real", tensor).untyped_storage()._cdata
