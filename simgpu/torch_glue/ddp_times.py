"""The times that DDP logs, by the simulated clock: torch's C++ code has timers for the CPU and for CUDA alone.

    forward          backward                     all-reduces
    F────────────────B──────────────────────────────▶b          marks in the device's current stream, as CUDA's events
                            C───────────────────────────▶c      the first bucket is sent, the last one is there

Source: torch's ``reducer.cpp`` and ``logger.cpp``: what is marked where, in nanoseconds, and in which steps. CUDA's
timer also waits for the GPU when it is read, in those steps; the simulated clock leaves that out.
"""

import torch

from simgpu.device.state import state
from simgpu.torch_glue.here import here

_TIMES = {  # a time's name in DDP's record: from which mark to which
    "forward_compute_time": ("forward_compute_time_start", "backward_compute_time_start"),
    "backward_compute_time": ("backward_compute_time_start", "backward_compute_time_end"),
    "backward_comm_time": ("backward_comm_time_start", "backward_comm_time_end"),
    "backward_compute_comm_overlap_time": ("backward_comm_time_start", "backward_compute_time_end"),
}
_NS_PS = 1000


class Times:
    """The marks of one DDP model's last step on GPU number `index`, and the averages of the steps that were logged."""

    def __init__(self, index):
        self._index, self._steps, self._logged, self._asked, self._rate = index, 0, 0, None, 100
        self._marks, self.found = {}, {}

    def every(self, steps):
        """Log every so many steps, after the first ten."""
        self._rate = steps

    def forward(self):
        """Begin a step."""
        self._steps += 1
        self._marks = {}
        self._mark("forward_compute_time_start")

    def backward(self):
        """Note that the forward pass is over."""
        self._mark("backward_compute_time_start")

    def bucket(self):
        """Note that a bucket is about to be sent; in a backward pass, note that pass's end when it comes."""
        task = torch._C._current_graph_task_id()
        if task < 0 or state.clock is None:
            return
        if "backward_comm_time_start" not in self._marks:
            self._mark("backward_comm_time_start")
        if task != self._asked:  # the engine calls this before DDP's own end of the pass, which was asked for later
            self._asked = task
            torch.autograd.Variable._execution_engine.queue_callback(self._end)

    def _end(self):
        self._mark("backward_compute_time_end")
        arrived = here().arrived(self._index) if here() else 0
        self._marks["backward_comm_time_end"] = max(self._marks["backward_compute_time_end"], arrived)

    def _mark(self, name):
        if state.clock is not None:
            self._marks[name] = state.clock.mark(state.clock.current_stream(self._index))

    def log(self):
        """Add the last step to what is `found`, in the steps in which torch does, before the next one begins."""
        if not self._steps or (self._steps > 10 and self._steps % self._rate):
            return
        self._logged += 1
        averages = {name: value for name, value in self.found.items() if name.startswith("avg")}
        self.found = averages | {name: mark // _NS_PS for name, mark in self._marks.items()}
        for name, (begin, end) in _TIMES.items():
            if begin in self._marks and end in self._marks:
                took = (self._marks[end] - self._marks[begin]) // _NS_PS
                before = averages.get(f"avg_{name}", 0)
                self.found |= {name: took, f"avg_{name}": (took + before * (self._logged - 1)) // self._logged}
