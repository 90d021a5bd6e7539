"""A stream on the simulated clock: a queue of work, of which all that must be known is when the last of it ends.

``torch.sim.Stream`` and ``torch.sim.Event`` are made of it. Times are integers, in picoseconds since the clock started.
"""

PS = 10**12  # picoseconds in a second


class Queue:
    """The work of one stream, `number` of `device`; what it holds runs in order, and is done at `end`."""

    __slots__ = ("clock", "device", "end", "number")

    def __init__(self, clock, device, number):
        self.clock, self.device, self.number, self.end = clock, device, number, 0

    def __repr__(self):
        return f"<simulated stream {self.number} of device {self.device}>"
