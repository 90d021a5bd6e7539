"""DTensor on simulated ranks: its rules for sharding, found once for all ranks, and its random numbers.

Each rank is a thread, and torch keeps what it has found for each thread apart; finding it takes a hundred times as long
as the operation. Whatever ranks of one mesh ask alike has one answer, but for the mesh, which each has for itself.
What depends on the rank, the arguments that are sharded anew and the way there, is not shared: where ranks have parts
of different lengths, torch would take one rank's way for all.

Of random numbers replicas draw the same ones, shards draw others. torch's own way counts in the state of CUDA's
generators, a seed and an offset; those of simulated GPUs are the CPU's.
"""

import contextlib
from dataclasses import replace

import torch
from torch.distributed.tensor import _random, _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._utils import try_find_mesh_from_args

from simgpu.device.state import state
from simgpu.torch_glue.here import here


def propagate(own):
    """Return torch's rules for sharding, which it calls for the first rank that asks."""

    def propagate(propagator, schema):
        if here() is None:
            return own(propagator, schema)
        known = here().world.shardings
        found = known.get(schema)
        if found is None:
            found = own(propagator, schema)
            if found.redistribute_schema is None:
                known[schema] = found
            return found
        mesh = try_find_mesh_from_args(schema.op, schema.args_schema)
        return replace(found, output_spec=_on_mesh(found.output_spec, mesh))

    return propagate


def _on_mesh(spec, mesh):
    if isinstance(spec, DTensorSpec):
        return replace(spec, mesh=mesh)
    return type(spec)(_on_mesh(part, mesh) for part in spec) if isinstance(spec, (tuple, list)) else spec


def steps(own):
    """Return torch's function for the steps of a redistribution, kept for each rank apart."""

    def steps(*specs):
        rank = here()
        if rank is None:
            return own(*specs)
        known, key = rank.world.shardings, (rank.number, *specs)
        if key not in known:
            known[key] = _redistribute._gen_transform_infos_non_cached(*specs)
        return known[key]

    return steps


def planner(own):
    """Return what makes a planner of redistributions, a new one each time: torch keeps one for all ranks."""
    return _redistribute.DTensorRedistributePlanner


def tracker(own):
    """Return a rank's own tracker of random numbers."""
    return Tracker()


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
