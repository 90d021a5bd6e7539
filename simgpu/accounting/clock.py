"""The simulated clock: what a program would cost on a named machine, the same to the last digit on every run.

Time is kept in integer picoseconds. A cost is rounded once, when it is first worked out; after that there are only
sums and maxima of integers, so no order of additions and no length of a run can make two results differ.

    host      ───call───call────call────────────wait──▶        each thread of the program has its own
    stream         └─matmul──────┘└─add─┘└─copy─┘              each starts after the one before and after its call
    wire                                 └─bytes─┘             one copy at a time in each direction, in order of asking

A call costs the host what `hardware.op_costs` says for the execution mode, less in autograd's backward than
in Python, and then it goes on. ``x.item()`` is such a call; indexing costs a share of one; other views are free.
The host waits only where CUDA makes it wait: `synchronize`, a blocking copy from or to pinned memory, and any copy
from or to pageable memory.

Threads: see `queues`.
"""

import contextlib
import threading
from contextlib import AbstractContextManager

from simgpu.accounting.fusion import Fusion
from simgpu.accounting.op_work import measure, signature
from simgpu.accounting.queues import PS, Hosts, Queue
from simgpu.accounting.trace import Span, Trace
from simgpu.hardware.arguments import find, not_negative
from simgpu.hardware.op_costs import HOST_COSTS, LAUNCH_S, HostCost, hop_seconds, operation_seconds
from simgpu.hardware.topology import Hop, Machine

_LAUNCH, _ASK = round(LAUNCH_S * PS), PS // 10**6  # asking whether something is done takes a microsecond (assumed)
_MOST_COSTS = 20_000  # remembered; past that they are worked out again


class Clock:
    """The clock of the simulated GPUs of a machine.

    Args:
        machine: The machine; its GPUs are devices 0 to ``machine.count - 1``.
        mode: The execution mode, a name in `hardware.HOST_COSTS` or a `HostCost`.

    Raises:
        ValueError: The mode is unknown.
    """

    def __init__(self, machine: Machine, mode: str | HostCost = "eager") -> None:
        self.machine, self.lock = machine, threading.RLock()
        self.mode = mode if isinstance(mode, HostCost) else find(HOST_COSTS, mode, "execution mode")
        self._default = [Queue(self, device, 0) for device in range(machine.count)]
        self._ends, self._numbers = [0] * machine.count, [0] * machine.count
        self._wires: dict[str, int] = {}  # when each is free
        self._costs: dict[tuple, tuple[int, str, int]] = {}
        self._routes: dict[tuple, tuple[Hop, ...]] = {}
        self.traces: tuple[Trace, ...] = ()
        self.traffic: dict[tuple, list[int]] = {}  # [calls, bytes that GPUs sent, picoseconds] by collective and group
        self._host, self.fuses, self._fusion = Hosts(_LAUNCH, self.mode).here, self.mode.fuses, Fusion(self)
        self._fusing = int(self.fuses)  # how many threads now run in a mode that fuses, and the clock's own

    # -- what the devices report -------------------------------------------------------------------------------------

    def operation(self, device, func, args, kwargs, out):
        """Queue one operation on the device's current stream; views and other changes of metadata are free.

        The arguments are those of `op_work`.
        """
        self.queue(device, self.price(func, args, kwargs, out), (func, args, kwargs, out))

    def price(self, func, args, kwargs, out):
        """Return what an operation costs, for `queue`: picoseconds, its name, its bytes; None if it costs nothing."""
        key = signature(func, args, kwargs, out)
        return None if key is None else self._costs.get(key) or self._price(key, func, args, kwargs, out)

    def queue(self, device, cost, values=None):
        """Queue an operation of a known cost on the current stream; values: as `price` takes them, if it `fuses`."""
        if cost is None:
            return
        with self.lock:
            host = self._host()
            stream = host.streams.get(device) or self._default[device]
            if host.fuses:
                self._fusion.queue(host, stream, cost, values)
                return
            call = host.call_cost()
            launched = host.now = host.now + call
            start = stream.end if stream.end > launched else launched
            stream.end = end = start + cost[0]
            if end > self._ends[device]:
                self._ends[device] = end
            if self.traces:
                name, nbytes = cost[1], cost[2]
                if call:
                    self._log(Span("launch", "host", host.row_on(device), name, launched - call, launched, 0))
                self._log(Span("operation", f"gpu{device}", stream.number, name, start, end, nbytes))

    def call(self, device, name, share):
        """Charge the host with PyTorch's own part of a call that launches no kernel of its own.

        share: of what an operation costs the host besides its launch, 0 to 1. Compiled code makes no such call.
        """
        with self.lock:
            host = self._host()
            if host.fuses:
                return
            begin = host.now
            host.now += round(max(0, host.call_cost() - host.launch) * share)
            if self.traces and host.now > begin:
                self._log(Span("work", "host", host.row_on(device), name, begin, host.now, 0))

    def copy(self, src, dst, nbytes, pinned, blocking):
        """Queue a copy between two places.

        Between devices it takes its turn in the current streams of both and the host never waits. From or to the host,
        the host waits when `blocking`, and always when its memory is not `pinned`.

        Args:
            src, dst: A device's index, or None for the host.
            nbytes: The size.
            pinned: Whether the host's memory is page-locked.
            blocking: Whether the program asked to wait.
        """
        if nbytes == 0:
            return
        with self.lock:
            host = self._host()
            host.now += host.launch
            streams = [host.streams.get(end) or self._default[end] for end in (src, dst) if end is not None]
            self._fusion.part(*(stream.device for stream in streams))
            start, hops = max([host.now, *(stream.end for stream in streams)]), self._route(src, dst)
            name = f"copy {_place(src)}→{_place(dst)}"
            costs = hop_seconds(nbytes, hops, pinned or None not in (src, dst))
            for hop, (delay, seconds) in zip(hops, costs, strict=True):
                start = self._occupy(hop.wires, start + round(delay * PS), round(seconds * PS), name, nbytes)
            time = start + round(costs[-1][1] * PS)
            for stream in streams:
                stream.end = time
                self._ends[stream.device] = max(self._ends[stream.device], time)
            if None in (src, dst) and (blocking or not pinned):
                self.wait_until(time, name)

    def synchronize(self, device: int | None = None) -> None:
        """Make the host wait until the device, or with None every device, has finished all its streams."""
        with self.lock:
            self._fusion.part(*(range(len(self._ends)) if device is None else [device]))
            self.wait_until(max(self._ends) if device is None else self._ends[device], "synchronize")

    # -- streams, events and the host's own time ---------------------------------------------------------------------

    def stream(self, device):
        """Return the `Queue` of a new stream on the device."""
        with self.lock:
            self._numbers[device] += 1
            return Queue(self, device, self._numbers[device])

    def current_stream(self, device):
        """Return the stream on which the calling thread queues work for the device."""
        with self.lock:
            return self._host().streams.get(device) or self._default[device]

    def default_stream(self, device):
        """Return the device's stream number 0, on which every thread begins."""
        return self._default[device]

    def set_stream(self, stream):
        """Make `stream` the calling thread's current stream on its device."""
        with self.lock:
            self._host().streams[stream.device] = stream

    def now(self) -> float:
        """Return the calling thread's simulated time, in seconds since the clock started."""
        return self.now_ps() / PS

    def now_ps(self) -> int:
        """Return the calling thread's simulated time in picoseconds, an integer."""
        with self.lock:
            return self._host().now

    def advance(self, seconds: float, name: str = "host work") -> None:
        """Let the host be busy, as when it reads and decodes data.

        Args:
            seconds: How long, simulated.
            name: What a trace shows.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        not_negative("the seconds of a host's work", seconds)
        with self.lock:
            self._spend("work", self._host().now + round(seconds * PS), name)

    def beside(self, row: int, seconds: float, name: str, after: int = 0) -> int:
        """Let a process next to this program be busy, such as a loading worker; the host goes on meanwhile.

        Args:
            row: The host's row in which a trace draws it.
            seconds: How long, simulated.
            name: What a trace shows.
            after: When its work before ended, in picoseconds: it begins now, but not before that.

        Returns:
            When it ends, in picoseconds, for `wait_until`.

        Raises:
            ValueError: `seconds` is negative or not finite.
        """
        not_negative("the seconds of a process's work", seconds)
        with self.lock:
            begin = max(self._host().now, after)
            end = begin + round(seconds * PS)
            if self.traces:
                self._log(Span("work", "host", row, name, begin, end, 0))
            return end

    def wait_until(self, time: int, name: str) -> None:
        """Make the calling thread go on no earlier than `time`, in picoseconds; `name` says what it waits for."""
        with self.lock:
            self._spend("wait", time, name)

    def ask(self, time):
        """Return whether `time` has come; every question takes the host a microsecond, so that polling ends."""
        with self.lock:
            host = self._host()
            host.now += _ASK
            return time <= host.now

    def hold(self, stream, time):
        """Let what `stream` is given from now on start no earlier than `time`; the host does not wait."""
        with self.lock:
            self._fusion.part(stream.device)
            stream.end = max(stream.end, time)
            self._ends[stream.device] = max(self._ends[stream.device], stream.end)

    def mark(self, stream):
        """Return the time at which `stream` gets past all it holds now."""
        with self.lock:
            self._fusion.part(stream.device)
            stream.end = max(stream.end, self._host().now)
            return stream.end

    def one_launch(self) -> AbstractContextManager[None]:
        """Return a context manager: all that the calling thread queues inside costs the host one launch together."""
        return self._host().one_launch()

    def from_cpp(self):
        """Return a context manager: torch's C++, not Python, calls what the calling thread queues inside."""
        return self._host().from_cpp()

    def run_as(self, mode):
        """Return a context manager: the calling thread runs what is inside in the execution mode of that name."""
        return self._running_as(find(HOST_COSTS, mode, "execution mode"))

    def trace(self) -> Trace:
        """Return a context manager that records what happens while it is open."""
        return Trace(self)

    @contextlib.contextmanager
    def _running_as(self, mode):
        with self.lock:
            self._fusing += mode.fuses
            self.fuses = self._fusing > 0
        try:
            with self._host().running_as(mode):
                yield
        finally:
            with self.lock:
                self._fusing -= mode.fuses
                self.fuses = self._fusing > 0

    # -- inside ------------------------------------------------------------------------------------------------------

    def _spend(self, kind, until, name):
        host = self._host()
        if until > host.now:
            if self.traces:
                self._log(Span(kind, "host", host.row_on(), name, host.now, until, 0))
            host.now = until

    def _price(self, key, func, args, kwargs, out):
        work = measure(func, args, kwargs, out)
        gpu = self.machine.gpu
        seconds = operation_seconds(work.flops, work.nbytes, gpu, work.kind, work.dtype, work.gemms)
        if len(self._costs) >= _MOST_COSTS:
            self._costs.clear()
        cost = self._costs[key] = (round(seconds * PS), work.name, work.nbytes)
        return cost

    def _occupy(self, wires, earliest, duration, name, nbytes):
        start = max([earliest, *(self._wires.get(wire, 0) for wire in wires)])
        for wire in wires:
            self._wires[wire] = start + duration
            if self.traces:
                self._log(Span("copy", wire, 0, name, start, start + duration, nbytes))
        return start

    def _route(self, src, dst):
        if (src, dst) not in self._routes:
            self._routes[src, dst] = self.machine.route(src, dst)
        return self._routes[src, dst]

    def _log(self, span):
        for trace in self.traces:
            trace.spans.append(span)


class ClusterClock(Clock):
    """The clock of a cluster, whose programs number the GPUs of their own node from 0.

    Attributes:
        first: The number, among all GPUs, of the one that the running program calls GPU 0.
    """

    first = 0

    def queue(self, device, cost, values=None):
        """As `Clock.queue`."""
        super().queue(self.first + device, cost, values)

    def call(self, device, *what):
        """As `Clock.call`."""
        super().call(self.first + device, *what)

    def copy(self, src, dst, *how):
        """As `Clock.copy`."""
        super().copy(*(None if end is None else self.first + end for end in (src, dst)), *how)

    def synchronize(self, device=None):
        """As `Clock.synchronize`."""
        super().synchronize(None if device is None else self.first + device)

    def stream(self, device):
        """As `Clock.stream`."""
        return super().stream(self.first + device)

    def current_stream(self, device):
        """As `Clock.current_stream`."""
        return super().current_stream(self.first + device)

    def default_stream(self, device):
        """As `Clock.default_stream`."""
        return super().default_stream(self.first + device)


def _place(end):
    return "host" if end is None else f"gpu{end}"
