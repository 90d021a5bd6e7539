"""The random numbers of DTensors: replicas draw the same ones, shards draw others.

torch's own way counts in the state of CUDA's generators, a seed and an offset; those of simulated GPUs are the CPU's.
"""

import contextlib

import torch
from torch.distributed.tensor import _random

from simgpu.device.state import state


class Tracker(_random._RNGStateTracker):
    """What DTensor asks before it draws. All ranks are taken to have seeded their generators alike, as torch asks."""

    def __init__(self):
        self._use_distribute_region = True

    @contextlib.contextmanager
    def _distribute_region(self, spec, generator=None):
        """Let a rank draw its part inside: a replica as one device would, a shard from a seed that all draw first."""
        own, before = state.gpus[state.current].generator, None
        if generator is not None:  # DTensor takes it out of the call, which draws from the device's own
            before = own.get_state()
            own.set_state(generator.get_state())
        shard, after = _shard(spec), None
        if shard is not None:
            seed = torch.empty((), dtype=torch.int64).random_(generator=own).item()
            after = own.get_state()
            own.manual_seed((seed + shard) % 2**63)
        try:
            yield
        finally:
            if after is not None:
                own.set_state(after)
            if before is not None:
                generator.set_state(own.get_state())
                own.set_state(before)


def _shard(spec):
    """Return the number of the calling rank's shard of a DTensor, None where the tensor is only replicated."""
    sharded = [dim for dim, placement in enumerate(spec.placements) if not placement.is_replicate()]
    number = 0
    for dim in sharded:
        number = number * spec.mesh.size(dim) + spec.mesh.get_coordinate()[dim]
    return number if sharded else None
