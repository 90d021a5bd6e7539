"""The current device, each thread's own: what a bare ``"sim"`` means."""

import contextlib

from simgpu.device.state import index_of, state


def current_device():
    """Return the index of the calling thread's current device."""
    return state.current


def set_device(device):
    """Make a device the calling thread's current one; a negative index changes nothing."""
    if not (isinstance(device, int) and device < 0):
        state.current = index_of(device)


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
