"""What the simulated GPUs of this process are: one object that the other modules of this package read.

There is one set of devices a process, as with CUDA. `enable` in the package changes it; nothing else does.
"""

import threading
from dataclasses import dataclass

import torch

from simgpu.accounting.memory import Memory


@dataclass
class Gpu:
    """One simulated GPU: its place in the list, its torch.device, its memory, and its random numbers."""

    index: int
    device: torch.device
    memory: Memory
    generator: torch.Generator


class State:
    """The simulated GPUs, the clock or None, whether memory is counted, and the hardware they stand for."""

    def __init__(self):
        self.gpus, self.clock, self.counting, self.machine = [], None, True, None
        self.home = torch.device("cpu")  # where the real tensors lie; "meta" when the GPUs hold shapes only
        self.leads = False  # whether sim, and not a real accelerator, is what torch.accelerator names
        self.as_cuda = 0  # how often `simgpu.as_cuda` holds; where it does, programs may say cuda for sim
        self.told_nothing = False  # whether the host keeps what it has where shapes alone come back from a GPU
        self.backward_ended = None  # called after each backward pass, where ranks are simulated
        self._thread = threading.local()

    @property
    def current(self):
        """The index of the calling thread's current device, 0 unless it was set."""
        return getattr(self._thread, "current", 0)

    @current.setter
    def current(self, index):
        self._thread.current = index

    def own(self):
        """Return the GPUs that are the calling thread's own: all of them, or a simulated rank's one."""
        mine = getattr(self._thread, "own", None)
        return self.gpus if mine is None else self.gpus[mine : mine + 1]

    def claim(self, index):
        """Make GPU `index` the only one that is the calling thread's own."""
        self._thread.own = index

    def check(self, index):
        """Return `index` if there is such a device; raises torch.AcceleratorError with CUDA's sentence if not."""
        if not self.gpus:
            raise RuntimeError("No simulated GPUs are available: call simgpu.enable() first")
        if not 0 <= index < len(self.gpus):
            kind, start = ("cuda", "CUDA") if self.as_cuda else ("sim", "sim")
            raise torch.AcceleratorError(
                f"{start} error: invalid device ordinal\nGPU device may be out of range, do you have enough GPUs? "
                f"There are {len(self.gpus)}, {kind}:0 to {kind}:{len(self.gpus) - 1}; got {kind}:{index}."
            )
        return index

    def index(self, device):
        """Return the index that a torch.device of type ``sim`` means, the current device's when it has none."""
        return self.check(self.current if device.index is None else device.index)


state = State()


def index_of(which=None):
    """Return the index of a device given in any way; raises ValueError for a device of another type."""
    if which is None or isinstance(which, int):
        return state.check(state.current if which is None else which)
    given = torch.device(meant(which))
    if given.type != "sim":
        raise ValueError(f"Expected a sim device, but got: {given}")
    return state.index(given)


def real_cuda():
    """Return whether torch.cuda has real GPUs, and is not a name for simulated ones."""
    return not state.as_cuda and torch.cuda.is_available()


def meant(argument):
    """Return the string or torch.device that is meant: sim for cuda where `simgpu.as_cuda` holds; all else as it is."""
    if state.as_cuda and isinstance(argument, (str, torch.device)) and str(argument).startswith("cuda"):
        return type(argument)(str(argument).replace("cuda", "sim"))
    return argument
