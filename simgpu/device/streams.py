"""Streams and events as ``torch.cuda`` has them, over the simulated clock.

Without a clock nothing runs behind the program's back: streams order nothing, and events read the wall clock.
"""

import contextlib
import time
from collections.abc import Iterator
from typing import Any

import torch

from simgpu.accounting.allocator import Block
from simgpu.accounting.queues import PS, Queue
from simgpu.device.state import Device, device, index_of, state
from simgpu.device.tensor import SimTensor


def _live(thing: Any) -> Any:
    """Return a queue, None without a clock, or an event; raises RuntimeError if it belongs to another clock."""
    if (None if thing is None else thing.clock) is not state.clock:
        raise RuntimeError(
            "expected a stream or event of the simulated GPUs as they are now, got one made before "
            "simgpu.enable was called last: make a new one"
        )
    return thing


class Stream:
    """A queue of work on one device, by default a new one on the current device."""

    known_as: Any = None  # inside `simgpu.as_cuda`, the class of torch.cuda's
    __class__ = property(lambda self: type(self).known_as or type(self))  # type: ignore[assignment]

    device_type = int(torch._C._autograd.DeviceType.PrivateUse1)  # type: ignore[call-overload]  # torch.Stream has a number too

    def __init__(self, device: Device = None, priority: int = 0, *, _queue: Queue | None = None) -> None:
        self.device_index = index_of(device)
        self.priority = priority
        self._scopes: list[Any] = []
        clock = state.clock
        self._queue = _queue if _queue is not None or clock is None else clock.stream(self.device_index)

    @property
    def device(self) -> torch.device:
        """The torch.device."""
        return torch.device("sim", self.device_index)

    @property
    def stream_id(self) -> int:
        """The number of the queue on its device; 0 is the default stream."""
        return self._queue.number if self._queue is not None else 0

    def synchronize(self) -> None:
        """Make the host wait until all that was queued has finished."""
        if self._queue is not None:
            self._queue.clock.wait_until(self._queue.clock.mark(self._queue), "stream synchronize")

    def query(self) -> bool:
        """Return whether all that was queued has finished; asking takes the host a little while."""
        return self._queue is None or self._queue.clock.ask(self._queue.end)

    def is_capturing(self) -> bool:
        """Return False: what is queued runs, and is not recorded for a graph."""
        return False

    def wait_stream(self, stream: "Stream") -> None:
        """Let later work here start only after what `stream` holds now; the host does not wait."""
        mine, other = _live(self._queue), _live(stream._queue)
        if mine is not None:
            mine.clock.hold(mine, other.clock.mark(other))

    def wait_event(self, event: "Event") -> None:
        """Let later work here start only after `event`."""
        event.wait(self)

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record `event`, or a new one, and return it."""
        event = event or Event()
        event.record(self)
        return event

    def __enter__(self) -> "Stream":
        self._scopes.append(stream(self))
        self._scopes[-1].__enter__()
        return self

    def __exit__(self, *exc: Any) -> bool | None:
        return self._scopes.pop().__exit__(*exc)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and (self.device_index, self._queue) == (other.device_index, other._queue)

    def __hash__(self) -> int:
        return hash((self.device_index, id(self._queue)))

    def __repr__(self) -> str:
        where = "cuda" if state.as_cuda else "sim"
        return f"<torch.{where}.Stream device={where}:{self.device_index} stream={self.stream_id}>"


class Event:
    """A mark in a stream; with ``enable_timing`` the milliseconds between two can be asked for."""

    known_as: Any = None
    __class__ = property(lambda self: type(self).known_as or type(self))  # type: ignore[assignment]

    def __init__(self, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> None:
        if interprocess:
            raise NotImplementedError("an event of a simulated GPU belongs to one process: leave interprocess out")
        self.enable_timing, self.clock = enable_timing, state.clock
        self._time: int | None = None  # in picoseconds of the clock
        self._wall: float | None = None  # in seconds of the wall clock

    def record(self, stream: Stream | None = None) -> None:
        """Put the mark into a stream, by default the current one, in place of an earlier one."""
        clock, queue = _live(self).clock, _live((stream or current_stream())._queue)
        if clock is not None:
            self._time = clock.mark(queue)
        self._wall = time.perf_counter()

    def wait(self, stream: Stream | None = None) -> None:
        """Let later work in a stream, by default the current one, start only after the mark; no mark, no wait."""
        clock, queue = _live(self).clock, _live((stream or current_stream())._queue)
        if clock is not None and self._time is not None:
            clock.hold(queue, self._time)

    def query(self) -> bool:
        """Return whether the mark was reached; one that was never recorded counts as reached."""
        return self.clock is None or self.clock.ask(self._time or 0)

    def synchronize(self) -> None:
        """Make the host wait for the mark."""
        if self.clock is not None:
            self.clock.wait_until(self._time or 0, "event synchronize")

    def elapsed_time(self, end_event: "Event") -> float:
        """Return the milliseconds from this mark to another: simulated ones, or wall-clock ones without a clock.

        Raises:
            ValueError, RuntimeError: The time cannot be known; the sentences are CUDA's.
        """
        clock = _live(self).clock
        _live(end_event)
        if not (self.enable_timing and end_event.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._wall is None or end_event._wall is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if clock is None:
            return (end_event._wall - self._wall) * 1e3
        begin, end = self._time or 0, end_event._time or 0
        if max(begin, end) > clock.now_ps():
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end - begin) / (PS // 1000)


class MemoryStreams:
    """Which streams the allocator knows to use a tensor's memory; it goes on telling when the tensor is no more."""

    def __init__(self, block: Block | None, index: int) -> None:
        self._block, self._index = block, index

    @property
    def allocated(self) -> Stream | None:
        """The stream that was current when the memory was allocated; None where memory or time is not counted."""
        if self._block is None or self._block.stream is None:
            return None
        return Stream(self._index, _queue=self._block.stream)

    @property
    def recorded(self) -> list[Stream]:
        """The other streams that ``Tensor.record_stream`` named until now, a list."""
        return [Stream(self._index, _queue=queue) for queue in self._block.recorded] if self._block else []


def memory_streams(tensor: torch.Tensor) -> MemoryStreams:
    """Return the `MemoryStreams` of a tensor on a simulated GPU.

    CUDA's caching allocator gives a freed block at once to the stream on which it was allocated, and only then waits
    for other streams when they were recorded. Here memory goes back at once in any case, so that a program that forgot
    ``record_stream`` computes right; this tells whether it forgot.

    Raises:
        TypeError: The tensor is elsewhere.

    >>> simgpu.enable(1)
    >>> x, copying = torch.ones(2, device="sim"), torch.sim.Stream()
    >>> x.record_stream(copying)
    >>> simgpu.memory_streams(x).recorded == [copying]
    True
    """
    if type(tensor) is not SimTensor:
        raise TypeError(f"expected a tensor on a simulated GPU, got {getattr(tensor, 'device', type(tensor).__name__)}")
    return MemoryStreams(state.gpus[tensor._index].allocator.block(tensor._real.untyped_storage()), tensor._index)


def current_stream(device: Device = None) -> Stream:
    """Return the calling thread's current stream on a device."""
    index = index_of(device)
    return Stream(index, _queue=state.clock.current_stream(index) if state.clock is not None else None)


def default_stream(device: Device = None) -> Stream:
    """Return a device's default stream."""
    index = index_of(device)
    return Stream(index, _queue=state.clock.default_stream(index) if state.clock is not None else None)


def set_stream(stream: Stream | None) -> None:
    """Make a stream the calling thread's current one on its device; None changes nothing."""
    if stream is None:
        return
    queue = _live(stream._queue)
    state.current = state.check(stream.device_index)
    if queue is not None:
        state.clock.set_stream(queue)


@contextlib.contextmanager
def stream(stream: Stream | None) -> Iterator[None]:
    """Queue work in a stream, and on its device, inside a ``with``; None changes nothing."""
    if stream is None:
        yield
        return
    with device(stream.device_index):
        before = current_stream()
        set_stream(stream)
        try:
            yield
        finally:
            set_stream(before)
