"""What a process group of simulated ranks is called, and which device is its own."""

import torch
import torch.distributed as dist

from simgpu.device.state import state


def is_ours(group):
    """Return whether a group is one of simulated ranks."""
    return hasattr(group, "declare")


def get_backend(own):
    """Return what the backend is called: as the program did, or NCCL where it finds simulated GPUs as CUDA's."""

    def get_backend(group=None):
        name, group = own(group), group or dist.group.WORLD
        if not is_ours(group):
            return name
        return group.backend if group.backend == "undefined" else group.getBackendName()

    return get_backend


def get_backend_config(own):
    """Return which backend takes the tensors of which device, as torch writes it."""

    def get_backend_config(group=None):
        config, group = own(group), group or dist.group.WORLD
        return _config(group.backends) if is_ours(group) and state.as_cuda else config

    return get_backend_config


def _config(backends):
    pairs = (backends or {"cpu": "gloo", "sim": "nccl"}).items()
    return ",".join(sorted(f"{device.replace('sim', 'cuda')}:{name}" for device, name in pairs))


def bind(group, device):
    """Note the device that a program gave its group: then torch warns of no barrier that has to choose one."""
    if device is not None:
        group.bound_device_id = (
            torch.device("cuda" if state.as_cuda else "sim", device) if isinstance(device, int) else device
        )
