"""How DTensor shards an operation's results, found once for all ranks.

Each rank is a thread, and torch keeps what it has found for each thread apart; finding it takes a hundred times as long
as the operation. Whatever ranks of one mesh ask alike has one answer, but for the mesh, which each has for itself.
What depends on the rank, the arguments that are sharded anew, is not shared.
"""

from dataclasses import replace

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._sharding_prop import ShardingPropagator
from torch.distributed.tensor._utils import try_find_mesh_from_args

from d2lmini.sim.ranks.here import here


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


def _own(spec, mesh):
    if isinstance(spec, DTensorSpec):
        return replace(spec, mesh=mesh)
    return type(spec)(_own(part, mesh) for part in spec) if isinstance(spec, (tuple, list)) else spec


_propagate = ShardingPropagator.propagate_op_sharding_non_cached
