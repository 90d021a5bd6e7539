"""DDP's reducer: its C++ code needs three things that Python gives; DDP's own mixed precision warns.

Where parameters may go unused, it copies a map of those that were used from pinned memory to the device. A kernel in
Python for ``torch.empty_strided`` can give such memory where torch's hooks cannot, but slows down every program; so it
is there only from the first such reducer to the end of the ranks, or of a process that is one rank of gloo's. And
inside ``join`` it keeps a Work that nobody in Python does, whose methods would be gone with it. And where GPUs hold
shapes only, it cannot read what ranks tell one another: whether their parameters have the same shapes, which is not
looked at, and in which order rank 0's gradients came, which is that of the buckets from the second step on. There each
rank's own order stands for it.
"""

import contextlib
import functools
import os
import warnings
import weakref
from collections import Counter

import torch
import torch.distributed as dist

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor
from simgpu.torch_glue.ddp_times import Times
from simgpu.torch_glue.here import here

_kernel = None


class _Reducer(dist.Reducer):
    """torch's reducer, with what it needs. The arguments are those of ``dist.Reducer``."""

    def __init__(self, *args):
        super().__init__(*args)
        self.group, self._ours = args[3], any(type(parameter) is SimTensor for parameter in args[0])
        self._sizes = [(parameter.numel(), parameter.dtype) for parameter in args[0]]
        self._first, self._caps, self._names = args[1], (args[9], args[5]), args[8]
        self._sent = Counter()  # in this backward pass, the buckets by their number of elements
        self.times = Times(args[0][0]._index) if type(args[0][0]) is SimTensor else None
        if self._ours and args[6]:  # find_unused_parameters
            _provide()

    def prepare_for_forward(self):
        """Begin a forward pass."""
        if self.times:
            self.times.forward()
        super().prepare_for_forward()

    def prepare_for_backward(self, outputs):
        """Begin a backward pass."""
        self._sent.clear()
        if self.times:
            self.times.backward()
        if hasattr(self.group, "reducer"):  # one of ours
            self.group.reducer = weakref.ref(self)
        super().prepare_for_backward(outputs)

    def _set_ddp_runtime_logging_sample_rate(self, rate):
        if self.times:
            self.times.every(rate)
        super()._set_ddp_runtime_logging_sample_rate(rate)

    def bucket(self, numel):
        """Return a function that tells the parameters of the bucket which is reduced now, of `numel` elements."""
        if self.times:
            self.times.bucket()
        number, self._sent[numel] = self._sent[numel], self._sent[numel] + 1
        return functools.partial(self._in_words, numel, number)

    def _in_words(self, numel, number):
        """Return the names of a bucket's parameters; "" where none of that size is known.

        At first buckets are those that DDP made; from the second step on, of the gradients in the order in which they
        come, which is taken to be the reverse one.
        """
        backward = [torch.empty(size, dtype=dtype, device="meta") for size, dtype in reversed(self._sizes)]
        again, _ = dist._compute_bucket_assignment_by_size(backward, list(self._caps))
        last = len(backward) - 1
        for buckets in (self._first, [[last - i for i in bucket] for bucket in again]):
            found = [bucket for bucket in buckets if sum(self._sizes[i][0] for i in bucket) == numel]
            if found:
                bucket = found[min(number, len(found) - 1)]
                names = [self._names.get(i, f"parameter {i}").removeprefix(".") for i in bucket]
                more = f" and {len(names) - 3} more" if len(names) > 3 else ""
                return f", DDP's bucket of {', '.join(names[:3])}{more},"
        return ""

    def _rebuild_buckets(self):
        state.keep_host_values = _shapes_only()
        try:
            return super()._rebuild_buckets()
        finally:
            state.keep_host_values = False

    def _set_static_graph(self):
        if self._ours:
            _provide()
        super()._set_static_graph()

    def _set_mixed_precision_param_dtype(self, dtype):
        """Warn: torch's code then sums new buckets, and writes the first step's gradients into the old ones."""
        if self._ours:
            warnings.warn(
                "DDP's mixed_precision: in the first step torch sums other memory than the gradients were written to, "
                "on every device; skip that update, or use torch.autocast, or fully_shard with MixedPrecisionPolicy",
                stacklevel=4,
            )
        super()._set_mixed_precision_param_dtype(dtype)

    def _set_forward_pass_work_handle(self, work, use_static_world_size):
        self._work = work
        super()._set_forward_pass_work_handle(work, use_static_world_size)


class _Logger(dist.Logger):
    """torch's record of a DDP model, which once a process says on stderr that it times the CPU and CUDA alone."""

    _said = False

    def __init__(self, reducer):
        super().__init__(reducer)
        self._times, self._group, self._words, self._numbers = reducer.times, reducer.group, {}, {}

    def set_construction_data_and_log(self, *args):
        """As torch's, which asks a group named gloo for things of ProcessGroupGloo's own."""
        group = self._group
        if getattr(group, "backend", None) != "gloo":
            super().set_construction_data_and_log(*args)
            return
        group.backend = "unnamed"
        try:
            super().set_construction_data_and_log(*args)
        finally:
            group.backend = "gloo"
        named = ("GLOO_SOCKET_IFNAME", "GLOO_DEVICE_TRANSPORT")
        self._words = {"backend_name": "gloo", **{name.lower(): os.environ.get(name, "N/A") for name in named}}
        self._numbers = {"gloo_num_threads": 2}  # torch's default

    def _get_ddp_logging_data(self):
        data = super()._get_ddp_logging_data()
        data.strs_map = data.strs_map | self._words
        data.ints_map = data.ints_map | self._numbers | (self._times.found if self._times else {})
        return data

    def set_runtime_stats_and_log(self):
        """As torch's, without its words: said inside a function of torch's they become a warning of Python's."""
        if self._times:
            self._times.log()
        own = super().set_runtime_stats_and_log
        if _Logger._said:
            own()
            return
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            torch.zeros((), device="cpu").apply_(lambda _: own() or 0)
        _Logger._said = bool(said)


def reducer(own):
    """Return the class of DDP's reducer."""
    return _Reducer


def logger(own):
    """Return the class of DDP's record of a model."""
    return _Logger


def verify_params(own):
    """Raise RuntimeError where ranks have other parameters than rank 0, as torch does; shapes alone are trusted."""

    def verify_params(group, tensors, logger=None):
        if not _shapes_only():
            own(group, tensors, logger)

    return verify_params


def register_hook(own):
    """Register one of DDP's hooks in C++, or Python's for the one to float16, which finds no tensors in our Futures."""

    def register_hook(reducer, hook):
        if hook == dist.BuiltinCommHookType.FP16_COMPRESS:
            from torch.distributed.algorithms.ddp_comm_hooks.default_hooks import fp16_compress_hook

            dist._register_comm_hook(reducer, reducer.group, fp16_compress_hook)
        else:
            own(reducer, hook)

    return register_hook


def check_hook(own):
    """Let ranks send gradients as bfloat16: torch's own check of such a hook looks for CUDA and NCCL."""

    def check_hook(model, hook):
        if here() is None or not getattr(hook, "__name__", "").startswith("bf16_compress"):
            own(model, hook)

    return check_hook


def _shapes_only():
    return state.real_device.type == "meta"


def _provide():
    """Put the kernel in place; doing it again changes nothing."""
    global _kernel
    if _kernel is None:
        _kernel = torch.library.Library("aten", "IMPL", "CPU")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch says once a process that a kernel of its own is overridden
            _kernel.impl("empty_strided", _empty)


@contextlib.contextmanager
def around():
    """Put torch's own kernel back when ranks have ended."""
    global _kernel
    try:
        yield
    finally:
        if _kernel is not None:
            _kernel._destroy()
            _kernel = None


def _empty(size, stride, *, dtype=None, layout=None, device=None, pin_memory=None):
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride)) if all(size) else 0
    made = torch.empty(length, dtype=dtype, device="cpu").as_strided(size, stride)
    if pin_memory:
        made.untyped_storage()._sim_pinned = True
    return made
