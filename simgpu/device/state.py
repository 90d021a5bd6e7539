"""What the simulated GPUs of this process are: one object that the other modules of this package read.

There is one set of devices a process, as with CUDA. `enable` in the package changes it; nothing else does.
"""

import contextlib
import threading
from dataclasses import dataclass

import torch

from simgpu.accounting.allocator import Allocator

Device = int | str | torch.device | None  # an index, a name, a device; None for the current one


@dataclass
class Gpu:
    """One simulated GPU: its place in the list, its torch.device, its allocator, and its random numbers."""

    index: int
    device: torch.device
    allocator: Allocator
    generator: torch.Generator


class _Thread(threading.local):
    """A thread's current device, and whether the program has set one there."""

    current, chosen = 0, False


class State:
    """The simulated GPUs, the clock or None, whether memory is counted, and the hardware they stand for."""

    def __init__(self):
        self.gpus, self.clock, self.counting, self.machine = [], None, True, None
        self.real_device = torch.device("cpu")  # where the real tensors lie; "meta" when the GPUs hold shapes only
        self.is_accelerator = False  # whether sim, and not a real accelerator, is what torch.accelerator names
        self.as_cuda = 0  # how often `simgpu.as_cuda` holds; where it does, programs may say cuda for sim
        self.keep_host_values = (
            False  # in shapes-only mode: a copy from a device to the host leaves its target unchanged
        )
        self.stand_in = None  # shapes only: what returns a tensor of numbers for the host in place of an error
        self.before_copy = None  # called with what is copied within a GPU, where ranks are simulated
        self.backward_ended = None  # called after each backward pass, where ranks are simulated
        self.thread = _Thread()

    @property
    def current(self):
        """The index of the calling thread's current device, 0 unless it was set."""
        return self.thread.current

    @current.setter
    def current(self, index):
        self.thread.current = index

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
        # torch keeps the number in a signed byte: of sim:130 it has -126.
        return self.check(self.current if device.index is None else device.index % 256)


state = State()


def index_of(which: Device = None) -> int:
    """Return the index of a device given in any way; raises ValueError for a device of another type."""
    if which is None or isinstance(which, int):
        return state.check(state.current if which is None else which)
    which = to_sim(which)
    given = torch.device(which)
    if given.type != "sim":
        raise ValueError(f"Expected a sim device, but got: {given}")
    named = (
        which.partition(":")[2] if isinstance(which, str) else ""
    )  # torch keeps a byte of it: sim:256 is sim:0 there
    return state.check(int(named)) if named else state.index(given)


def real_cuda() -> bool:
    """Return whether torch.cuda has real GPUs, and is not a name for simulated ones."""
    return not state.as_cuda and torch.cuda.is_available()


_NAMES = str, torch.device


def to_sim(argument):
    """Return the string or torch.device that is meant: sim for cuda where `simgpu.as_cuda` holds; all else as it is."""
    if state.as_cuda and isinstance(argument, _NAMES) and str(argument).startswith("cuda"):
        return type(argument)(str(argument).replace("cuda", "sim"))
    return argument


# -- the current device, each thread's own: what a bare ``"sim"`` means ----------------------------------------------


def current_device() -> int:
    """Return the index of the calling thread's current device."""
    return state.current


def set_device(device: Device) -> None:
    """Make a device the calling thread's current one; a negative index changes nothing."""
    if not (isinstance(device, int) and device < 0):
        state.current, state.thread.chosen = index_of(device), True


class device(contextlib.ContextDecorator):  # the name that torch.cuda has
    """Make a device the current one inside a ``with``; None or a negative index changes nothing."""

    def __init__(self, device):
        self.idx = -1 if device is None or (isinstance(device, int) and device < 0) else index_of(device)
        self.prev_idx = -1

    def __enter__(self):
        self.prev_idx = state.current
        if self.idx >= 0:
            state.current = self.idx

    def __exit__(self, *exc):
        state.current = self.prev_idx
        return False


class device_of(device):
    """Make the device of a tensor the current one; a tensor elsewhere changes nothing."""

    def __init__(self, obj):
        super().__init__(obj.get_device() if obj.is_sim else -1)
