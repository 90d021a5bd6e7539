"""Who has a time of its own on the simulated clock: the streams of devices, and the program's host threads.

A stream is a queue of work, of which all that must be known is when the last of it ends; ``torch.sim.Stream`` and
``torch.sim.Event`` are made of it. Times are integers, in picoseconds since the clock started.

A host thread that first appears starts at the time of the thread that made the clock, and once it has ended, that
thread goes on no earlier than the other's last moment. Real threads interleave by chance, but the result does not
depend on it as long as threads queue work on different devices and over different wires, and the thread that started
them waits, which is what `torch.nn.parallel.parallel_apply` does. They are taken to run side by side.
"""

import contextlib
import threading

PS = 10**12  # picoseconds in a second


class Queue:
    """The work of one stream, `number` of `device`; what it holds runs in order, and is done at `end`."""

    __slots__ = ("clock", "device", "end", "number")

    def __init__(self, clock, device, number):
        self.clock, self.device, self.number, self.end = clock, device, number, 0

    def __repr__(self):
        return f"<simulated stream {self.number} of device {self.device}>"


class Host:
    """One host thread's time `now`, its streams by device where they are not the default ones, and what a launch costs.

    Args:
        now: When it begins, in picoseconds.
        launch: What a kernel launch costs, in picoseconds.
        mode: A `hardware.HostCost`.
        row: Its row in a timeline, 0 for the first thread, else None until it is known.
    """

    in_backward = staticmethod(lambda: False)  # whether autograd's engine calls; `torch_glue` knows how torch is asked

    def __init__(self, now, launch, mode, row=None):
        self.now, self.launch, self.row, self.streams = now, launch, row, {}
        self.run_as(mode)

    def run_as(self, mode):
        """Take an execution mode from now on.

        `calls` is what a call costs in picoseconds, outside backward and in it. `part` is new each time, for a compiler
        fuses nothing across the ends of what it compiles.
        """
        self.mode, self.fuses, self.part = mode, mode.fuses, object()
        self.calls = round(mode.forward_s * PS), round(mode.backward_s * PS)

    def call_cost(self):
        """Return what the next call costs, in picoseconds."""
        return self.calls[self.in_backward()] if self.launch else 0

    @contextlib.contextmanager
    def running_as(self, mode):
        """Take `mode` inside a ``with``."""
        before = self.mode
        self.run_as(mode)
        try:
            yield
        finally:
            self.run_as(before)

    @contextlib.contextmanager
    def one_launch(self):
        """Let all calls inside cost one launch together, as a replayed CUDA graph does."""
        before, self.launch = self.launch, 0
        self.now += before
        try:
            yield
        finally:
            self.launch = before

    @contextlib.contextmanager
    def from_cpp(self):
        """Let a call inside cost what it does in backward, where torch's C++ makes it."""
        before = self.calls
        self.calls = before[1], before[1]
        try:
            yield
        finally:
            self.calls = before

    def row_on(self, device=0):
        """Return the row, 1 + the first device that the thread gives work: not by which thread comes first."""
        if self.row is None:
            self.row = 1 + device
        return self.row


class Hosts:
    """The threads of one clock; `launch` is what one costs, in picoseconds, `mode` their first execution mode."""

    def __init__(self, launch, mode):
        self._launch, self._mode, self._main, self._others = launch, mode, Host(0, launch, mode, row=0), []
        self._local = threading.local()
        self._local.host = self._main

    def here(self):
        """Return the calling thread's `Host`."""
        try:
            host = self._local.host
        except AttributeError:
            host = self._local.host = Host(self._main.now, self._launch, self._mode)
            self._others.append((threading.current_thread(), host))
            return host
        if self._others and host is self._main:
            ended = [pair for pair in self._others if not pair[0].is_alive()]
            host.now = max([host.now, *(other.now for _, other in ended)])
            self._others = [pair for pair in self._others if pair not in ended]
        return host
