"""The clock of a cluster, whose programs number the GPUs of their own node from 0."""

from simgpu.accounting.clock import Clock


class ClusterClock(Clock):
    """The clock of a cluster. first: the number, among all GPUs, of the one that the running program calls GPU 0."""

    first = 0

    def queue(self, device, cost, values=None):
        """As `Clock.queue`."""
        super().queue(self.first + device, cost, values)

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
