"""FSDP1 and FSDP2 on simulated ranks."""

import torch

from simgpu.device.state import state
from simgpu.torch_glue.here import here


def device_from_id(own):
    """Return the device of FSDP1's ``device_id=rank``: torch makes devices of numbers where nothing can be replaced."""

    def device_from_id(*args):
        device = own(*args)  # None where a program gives no id
        return torch.device(str(device).replace("sim", "cuda")) if device and state.as_cuda else device

    return device_from_id


def without_offload(own):
    """Refuse parameters on the host: FSDP1 finds their gradients by the tensor that a change of device replaces."""

    def init_core_state(module, strategy, precision, offload, *options):
        if here() is not None and offload is not None and offload.offload_params:
            raise RuntimeError(
                "simulated ranks cannot train FSDP1's parameters on the host (CPUOffload): use fully_shard "
                "with CPUOffloadPolicy"
            )
        return own(module, strategy, precision, offload, *options)

    return init_core_state


def chunks(own):
    """Return FSDP2's function that cuts a parameter into one chunk a rank.

    torch's makes the chunks of all ranks, and each rank uses the first one and its own: of 512 ranks that is more work
    than all the rest of `fully_shard`.
    """
    return Chunks


class Chunks:
    """The chunks of `tensor` along `dim`, made when they are asked for by their number; those past its end are empty.

    As ``torch.chunk``, the first ones have all the same length, and the last one what is left.
    """

    def __init__(self, tensor, num_chunks, dim):
        self._tensor, self._dim = tensor, dim
        self._length = -(-tensor.shape[dim] // num_chunks)

    def __getitem__(self, number):
        start = number * self._length
        length = min(self._length, self._tensor.shape[self._dim] - start)
        if start and length <= 0:
            return self._tensor.new_empty(0)
        return self._tensor.narrow(self._dim, start, length)
