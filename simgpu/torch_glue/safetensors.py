"""Files of safetensors read onto simulated GPUs: its code in Rust knows other devices by name, but all by number."""

import functools

import torch

from simgpu.device.state import state


def opening(own):
    """Return ``safe_open``, which gives a simulated GPU by its number; torch takes that for the accelerator's."""

    @functools.wraps(own)
    def safe_open(filename, framework, device="cpu", **options):
        if isinstance(device, str | torch.device) and torch.device(device).type == "sim":
            device = state.index(torch.device(device))
        return own(filename, framework, device=device, **options)

    return safe_open
