"""Which operations a compiled step does in one kernel, and what that kernel need not move.

    x ──▶ add ──▶ layer norm ──▶ cast ──▶ product          one kernel reads x and writes what the cast returns

As in TorchInductor (`can_fuse` in torch/_inductor/codegen/simd.py) operations fuse that run over equally many numbers,
pointwise ones and reductions alike, at most 64 of them. Products, convolutions, attention, gathers, pools, copies and
optimizers keep their kernels. Operations come one by one here, so a kernel takes in only what follows it at once on its
stream and reads what it read or wrote.

A kernel reads a tensor once, and none that it wrote. What it consumes itself it does not write, unless another kernel
reads it later, as backward reads what autograd kept: then that one is charged with the writing. Inductor also takes
average pools apart, and a compiler can compute such a tensor again, or fuse beyond a product that stands in between; a
step is priced too high by that. It is priced too low where only a copy or a collective reads what a kernel consumed.
"""

from weakref import WeakKeyDictionary

import torch

from simgpu.accounting.gemms import moved
from simgpu.accounting.op_work import name_of, read_and_written
from simgpu.accounting.queues import PS
from simgpu.accounting.trace import Span
from simgpu.hardware.op_costs import memory_share

MOST = 64  # operations in one kernel: max_fusion_size in torch/_inductor/config.py
_FUSED = {  # besides those tagged pointwise: Inductor takes them apart into pointwise operations and reductions
    "_to_copy",
    "native_dropout",
    "native_layer_norm",
    "native_layer_norm_backward",
    "native_group_norm",
    "native_group_norm_backward",
    "native_batch_norm",
    "native_batch_norm_backward",
    "_fused_rms_norm",
    "_fused_rms_norm_backward",
    "_softmax",
    "_softmax_backward_data",
    "_log_softmax",
    "_log_softmax_backward_data",
    "nll_loss_forward",
    "nll_loss_backward",
    "sum",
    "mean",
    "amax",
    "amin",
    "var",
    "var_mean",
}
_READ, _WROTE, _KEPT = range(3)  # what a kernel did with a tensor; the last: it wrote none of it, and consumed it
# By storage: the last kernel that touched it, what that did, and the bytes that it wrote or kept.
_touched: WeakKeyDictionary[torch.UntypedStorage, tuple] = WeakKeyDictionary()


class Kernel:
    """The operations that one kernel does, each over `size` numbers; it takes in no others where `place` is None.

    Attributes:
        place: The stream, and the part of the program.
        alone, nbytes: What the first operation costs by itself, in picoseconds and bytes.
        moves: The bytes of all.
        start, before: In picoseconds, when it begins and when the device was done before.
        span: What stands in the traces.
    """

    def __init__(self, place=None, size=0, alone=0, nbytes=0):
        self.place, self.size, self.alone, self.nbytes = place, size, alone, nbytes
        self.names, self.moves, self.start, self.before, self.span = [], 0, 0, 0, None

    def after(self, place, cost, func, args, kwargs, out):
        """Return the kernel that does an operation queued next: this one or a new one.

        Args:
            place: Where the operation is queued, as `Kernel.place`.
            cost: What `Clock.price` returned for it.
            func, args, kwargs, out: Of its call, as `op_work` takes them.
        """
        read, written = read_and_written(args, kwargs, out)
        fuses = torch.Tag.pointwise in func.tags or name_of(func) in _FUSED
        size = max((tensor.numel() for tensor in read + written), default=0)
        alike = fuses and place == self.place and size == self.size and len(self.names) < MOST
        joins = alike and any(_last(tensor)[0] is self for tensor in read)
        kernel = self if joins else Kernel(place if fuses else None, size, *cost[::2])
        kernel._add(cost, read, written)
        return kernel

    def picoseconds(self, per_byte):
        """Return how long it runs, each byte taking so many picoseconds."""
        return max(0, self.alone + round((self.moves - self.nbytes) * per_byte))

    def _add(self, cost, read, written):
        self.names.append(cost[1])
        self.moves += cost[2] - sum(map(self._spared, read))
        for tensor in written:
            _touched[tensor.untyped_storage()] = self, _WROTE, moved(tensor)

    def _spared(self, tensor):
        """Return the bytes of a tensor that need not be moved; below 0 where an earlier kernel has not written it."""
        kernel, did, nbytes = _last(tensor)
        if kernel is not self:
            _touched[tensor.untyped_storage()] = self, _READ, 0
            return -nbytes if did == _KEPT else 0
        if self.place is None:
            return 0
        if did != _WROTE:
            return moved(tensor)
        _touched[tensor.untyped_storage()] = self, _KEPT, nbytes
        return moved(tensor) + nbytes


_CLOSED = Kernel()  # one that takes in nothing


class Fusion:
    """What the devices of a `Clock` run in execution modes that fuse."""

    def __init__(self, clock):
        gpu = clock.machine.gpu
        self._clock, self._per_byte = clock, PS / (gpu.memory_bytes_per_s * memory_share(gpu, "pointwise"))
        self._running = {}  # by device: its last kernel, which may take in more

    def part(self, *devices):
        """Let what runs on these devices take in nothing more, for somebody waits for it."""
        for device in devices:
            self._running.pop(device, None)

    def queue(self, host, stream, cost, values):
        """Queue an operation in the kernel that does it; where that runs already it costs the host nothing."""
        clock, device = self._clock, stream.device
        running = self._running.get(device, _CLOSED)
        kernel = self._running[device] = running.after((stream, host.part), cost, *values)
        call = 0
        if kernel is not running:
            call = host.call_cost()
            host.now += call
            kernel.start, kernel.before = max(stream.end, host.now), clock._ends[device]
        stream.end = kernel.start + kernel.picoseconds(self._per_byte)
        clock._ends[device] = max(kernel.before, stream.end)
        if clock.traces:
            self._log(kernel, stream, call, host)

    def _log(self, kernel, stream, call, host):
        """Write a kernel into the traces that are open, in place of what stands there of it."""
        device, name = stream.device, "+".join(dict.fromkeys(kernel.names))
        if call:
            self._clock._log(Span("launch", "host", host.row_on(device), name, host.now - call, host.now, 0))
        span = Span("operation", f"gpu{device}", stream.number, name, kernel.start, stream.end, kernel.moves)
        for spans in (trace.spans for trace in self._clock.traces):
            known = (i for i in reversed(range(len(spans))) if spans[i] is kernel.span)
            at = next(known, len(spans)) if kernel.span else len(spans)
            spans[at : at + 1] = [span]
        kernel.span = span


def _last(tensor):
    """Return the last kernel that touched a tensor's storage, what it did, and the bytes that it wrote or kept."""
    return _touched.get(tensor.untyped_storage(), (None, _READ, 0))
