"""First values of parameters that torch draws until they fit, where simulated GPUs hold shapes only."""

import functools

from simgpu.device.state import state


def without_numbers(own):
    """Return ``nn.init``'s function behind ``trunc_normal_``, which leaves tensors without numbers as they are."""

    @functools.wraps(own)
    def draw(tensor, *args, **options):
        if state.real_device.type == "meta" and tensor.device.type in ("sim", "cuda"):
            return tensor
        return own(tensor, *args, **options)

    return draw
