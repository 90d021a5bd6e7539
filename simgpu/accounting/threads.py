"""The program's threads on the simulated clock: each has a time of its own.

A thread that first appears starts at the time of the thread that made the clock, and once it has ended, that thread
goes on no earlier than the other's last moment. Real threads interleave by chance, but the result does not depend on it
as long as threads queue work on different devices and over different wires, and the thread that started them waits,
which is what `torch.nn.parallel.parallel_apply` does. They are taken to run side by side.
"""

import contextlib
import threading

from simgpu.accounting.streams import PS


class Host:
    """One thread's time `now`, its streams by device where they are not the default ones, and what a `launch` costs.

    way: of `hardware.host_costs`. row: its row in a timeline, 0 for the first thread, else None until it is known.
    """

    def __init__(self, now, launch, way, row=None):
        self.now, self.launch, self.row, self.streams = now, launch, row, {}
        self.run_as(way)

    def run_as(self, way):
        """Take `way` from now on: `calls` is what a call costs in picoseconds, outside backward and in it.

        part: new each time, for a compiler fuses nothing across the ends of what it compiles.
        """
        self.way, self.fuses, self.part = way, way.fuses, object()
        self.calls = round(way.forward_s * PS), round(way.backward_s * PS)

    @contextlib.contextmanager
    def running_as(self, way):
        """Take `way` inside a ``with``."""
        before = self.way
        self.run_as(way)
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
    """The threads of one clock; `launch` is what one costs, in picoseconds, `way` how they run a step at first."""

    def __init__(self, launch, way):
        self._launch, self._way, self._main, self._others = launch, way, Host(0, launch, way, row=0), []
        self._local = threading.local()
        self._local.host = self._main

    def here(self):
        """Return the calling thread's `Host`."""
        try:
            host = self._local.host
        except AttributeError:
            host = self._local.host = Host(self._main.now, self._launch, self._way)
            self._others.append((threading.current_thread(), host))
            return host
        if self._others and host is self._main:
            ended = [pair for pair in self._others if not pair[0].is_alive()]
            host.now = max([host.now, *(other.now for _, other in ended)])
            self._others = [pair for pair in self._others if pair not in ended]
        return host
