"""Whether replicas of a model are still equal, which torch never reports: what `simgpu.testing.replicas_equal` does."""

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook

from simgpu.device.tensor import numbers
from simgpu.ranks.diagnosis import place
from simgpu.torch_glue.here import here


class ReplicasEqual:
    """See `simgpu.testing.replicas_equal`."""

    def __init__(self, model):
        if here() is None:
            raise RuntimeError("replicas_equal compares simulated ranks: call it in what simgpu.spawn runs")
        self._model, self._hook = model, None
        self._check()

    def __enter__(self):
        self._hook = register_optimizer_step_post_hook(self._after_step)
        return self

    def __exit__(self, *error):
        self._hook.remove()

    def _after_step(self, optimizer, args, options):
        ours = {id(parameter) for parameter in self._model.parameters()}
        if any(id(parameter) in ours for group in optimizer.param_groups for parameter in group["params"]):
            self._check()

    @torch.no_grad()
    def _check(self):
        """Compare with rank 0; the copies that meet here take no time and no bytes on the simulated clock."""
        rank, world = here(), here().world
        world.compared[rank.number] += 1
        number = world.compared[rank.number]
        mine = {name: numbers(tensor).clone() for name, tensor in _whole(self._model)}
        world.replicas[number, rank.number] = mine
        world.store.set(f"replicas_equal #{number} of rank {rank.number}", "")
        world.store.wait([f"replicas_equal #{number} of rank {other}" for other in range(world.size)])
        first, wrong = world.replicas[number, 0], []
        for other in range(1, world.size):
            wrong += _differences(other, world.replicas[number, other], first)
        if wrong:
            raise AssertionError(f"replicas differ{place()}: {wrong[0]}{_more(len(wrong) - 1)}")
        world.replicas.pop((number - 1, rank.number), None)  # which all have compared


def _whole(model):
    """Yield (name, tensor) of what each rank has a whole copy of: all but the parts of sharded parameters."""
    for name, tensor in (*model.named_parameters(), *model.named_buffers()):
        placements = getattr(tensor, "placements", ())
        if not any(placement.is_shard() or placement.is_partial() for placement in placements):
            yield name, tensor.to_local() if placements else tensor.detach()


def _differences(rank, mine, first):
    for name in sorted({*mine, *first}):
        if name not in mine or name not in first or mine[name].shape != first[name].shape:
            yield f"{name} is not of one shape on ranks 0 and {rank}"
        elif not torch.equal(mine[name].nan_to_num(), first[name].nan_to_num()):
            gap = (mine[name].double() - first[name].double()).abs()
            yield (
                f"{name} on rank {rank} is off rank 0's by up to {gap.nan_to_num().max().item():.2g}, "
                f"in {int((gap != 0).sum())} of {gap.numel()} numbers"
            )


def _more(count):
    return f", and {count} more" if count else ""
