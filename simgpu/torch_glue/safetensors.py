"""Files of safetensors read onto simulated GPUs: its code in Rust knows other devices by name, but all by number."""

import sys
from importlib.util import find_spec

import torch

from simgpu.device.state import state


def owners():
    """Return the names of the modules that hold ``safe_open``, none where safetensors is not installed."""
    if find_spec("safetensors") is None:
        return []
    import safetensors.torch

    return [
        name
        for name, module in list(sys.modules.items())
        if getattr(module, "__dict__", {}).get("safe_open") is safetensors.safe_open
    ]


def opening(own):
    """Return ``safe_open``, which gives a simulated GPU by its number; torch takes that for the accelerator's."""

    def safe_open(filename, framework, device="cpu", **options):
        if isinstance(device, str | torch.device) and torch.device(device).type == "sim":
            device = state.index(torch.device(device))
        return own(filename, framework, device=device, **options)

    return safe_open
