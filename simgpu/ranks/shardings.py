"""How DTensor shards an operation's results, found once for all ranks.

Each rank is a thread, and torch keeps what it has found for each thread apart; finding it takes a hundred times as long
as the operation. Whatever ranks of one mesh ask alike has one answer, but for the mesh, which each has for itself.
What depends on the rank, the arguments that are sharded anew and the way there, is not shared: where ranks have parts
of different lengths, torch would take one rank's way for all.
"""

from dataclasses import replace

from torch.distributed.tensor import _redistribute
from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor._utils import try_find_mesh_from_args

from simgpu.ranks.here import here


def propagate(propagator, schema):
    """As torch's `ShardingPropagator.propagate_op_sharding_non_cached`, which it calls for the first rank that asks."""
    if here() is None:
        return _propagate(propagator, schema)
    known = here().world.shardings
    found = known.get(schema)
    if found is None:
        found = _propagate(propagator, schema)
        if found.redistribute_schema is None:
            known[schema] = found
        return found
    mesh = try_find_mesh_from_args(schema.op, schema.args_schema)
    return replace(found, output_spec=_own(found.output_spec, mesh))


def ways(*specs):
    """As torch's ``_gen_transform_infos``: the steps of a redistribution, kept for each rank apart."""
    rank = here()
    if rank is None:
        return _ways(*specs)
    known, key = rank.world.shardings, (rank.number, *specs)
    if key not in known:
        known[key] = _redistribute._gen_transform_infos_non_cached(*specs)
    return known[key]


def _own(spec, mesh):
    if isinstance(spec, DTensorSpec):
        return replace(spec, mesh=mesh)
    return type(spec)(_own(part, mesh) for part in spec) if isinstance(spec, (tuple, list)) else spec


_ways = _redistribute._gen_transform_infos
_propagate = ShardingPropagator.propagate_op_sharding_non_cached
