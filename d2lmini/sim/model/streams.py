"""Streams and events of the simulated clock, with the methods of `torch.cuda.Stream` and `torch.cuda.Event`.

A stream is a queue: what it holds runs in order, and all that must be known of it is when the last of it ends.
Times are integers, in picoseconds since the clock started.
"""

PS = 10**12  # picoseconds in a second


class Stream:
    """A queue of work on one device; `Clock.stream(device)` makes one. Number 0 is the device's default stream."""

    def __init__(self, clock, device, number):
        self.clock, self.device, self.number, self.end = clock, device, number, 0

    def synchronize(self):
        """Make the host wait until everything queued so far has finished."""
        self.clock.wait_until(self.end, "stream synchronize")

    def query(self):
        """Return whether everything queued has finished by now; asking takes the host a little while."""
        return self.clock.ask(self.end)

    def wait_event(self, event):
        """Let what is queued from now on start only after `event`, without making the host wait."""
        event.wait(self)

    def wait_stream(self, other):
        """Let what is queued from now on start only after all that `other` holds now."""
        with self.clock.lock:
            self.end = max(self.end, other.end)

    def record_event(self, event=None):
        """Queue `event`, or a new one, and return it."""
        event = event or Event(self.clock)
        event.record(self)
        return event

    def __repr__(self):
        return f"<simulated stream {self.number} of device {self.device}>"


class Event:
    """A mark in a stream; `Clock.event()` makes one. It is done when the stream reaches it."""

    def __init__(self, clock, enable_timing=False):
        self.clock, self.enable_timing, self.time = clock, enable_timing, None

    def record(self, stream):
        """Queue this mark in `stream`, in place of an earlier one."""
        self.time = self.clock.mark(stream)

    def wait(self, stream):
        """Let what `stream` is given from now on start only after this mark; no mark, no wait."""
        if self.time is not None:
            with self.clock.lock:
                stream.end = max(stream.end, self.time)

    def query(self):
        """Return whether the mark was reached by now; one that was never queued counts as reached."""
        return self.clock.ask(self.time or 0)

    def synchronize(self):
        """Make the host wait until the mark is reached."""
        self.clock.wait_until(self.time or 0, "event synchronize")

    def elapsed_time(self, end):
        """Return the simulated milliseconds from this mark to `end`.

        Raises ValueError unless both were made with ``enable_timing=True`` and recorded, and RuntimeError when one has
        not been reached yet: synchronize first.
        """
        if not (self.enable_timing and end.enable_timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self.time is None or end.time is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if max(self.time, end.time) > self.clock.now_ps():
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        return (end.time - self.time) / (PS // 1000)
