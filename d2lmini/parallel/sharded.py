"""Sharded data parallelism: ZeRO's three stages (Rajbhandari et al., SC 2020).

stage    kept whole                 sharded over n ranks                     sends, in parameters a rank
  0      all (plain DDP)            nothing                                  all-reduce: 2 (n − 1)/n
  1      parameters, gradients      the optimizer's state                    reduce-scatter, all-gather: 2 (n − 1)/n
  2      parameters                 and gradients                            as 1, each as soon as it is there
  3      nothing                    and parameters                           and gathered once more: 3 (n − 1)/n
"""

import weakref

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional as F


class Unit:
    """A module's parameters as one vector, and this rank's shard of it.

    The parameters become views of `whole`. Zeros pad its end, so that all
    ranks get equal parts. The optimizer updates `shard`, a view as well.
    """

    def __init__(self, module):
        self.params = list(module.parameters())
        self.n = dist.get_world_size()
        self.whole = self.flat([p.detach() for p in self.params])
        sizes = [p.numel() for p in self.params]
        pieces = self.whole[: sum(sizes)].split(sizes)
        for p, piece in zip(self.params, pieces):
            p.data = piece.view(p.shape)
        mine = self.whole.chunk(self.n)[dist.get_rank()]
        self.shard = nn.Parameter(mine)

    def flat(self, tensors):
        """Return tensors as one vector that `n` ranks can divide."""
        flat = torch.cat([t.flatten() for t in tensors])
        return F.pad(flat, (0, -len(flat) % self.n))

    def reduce(self):
        """Reduce-scatter the gradients: add their mean to the shard's."""
        whole = self.flat([p.grad for p in self.params]).div(self.n)
        for p in self.params:
            p.grad = None
        mean = torch.empty_like(self.shard)
        parts = list(whole.chunk(self.n))
        dist.reduce_scatter(mean, parts)
        earlier = self.shard.grad
        self.shard.grad = mean if earlier is None else earlier + mean

    def gather(self):
        """All-gather the whole vector from the ranks' shards."""
        memory = self.whole.untyped_storage()
        memory.resize_(self.whole.nbytes)  # if stage 3 has freed it
        parts = list(self.whole.chunk(self.n))
        dist.all_gather(parts, self.shard.detach())


def on_last_gradient(unit, *calls):
    """Call functions of a unit when backward has made its last gradient."""
    unit, made = weakref.proxy(unit), 0

    def ready(p):
        nonlocal made
        made = (made + 1) % len(unit.params)
        if made == 0:  # all are there
            for call in calls:
                call(unit)

    for p in unit.params:
        p.register_post_accumulate_grad_hook(ready)


def free(unit):
    """Free the memory of a unit's whole vector; its views stay."""
    unit.whole.untyped_storage().resize_(0)


def gather_when_used(module, unit):
    """Have hooks gather a unit before it is used, and free it after."""

    def before(module, inputs):
        unit.gather()

    def after(module, inputs, output):
        free(unit)
        if output.requires_grad:
            output.register_hook(lambda gradient: unit.gather())

    unit.shard.data = unit.shard.detach().clone()
    free(unit)
    module.register_forward_pre_hook(before)
    module.register_forward_hook(after)


def shard(modules, stage):
    """Shard modules over ranks by ZeRO-1, 2 or 3; return their `Unit`s.

    Train the units' shards. After backward call `reduce` in stage 1; after
    the update call `gather` in stages 1 and 2. Hooks do the rest.
    Raises ValueError for another stage.
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"expected ZeRO stage 1, 2 or 3, got {stage!r}")
    units = [Unit(module) for module in modules]
    for module, unit in zip(modules, units):
        if stage == 2:
            on_last_gradient(unit, Unit.reduce)
        if stage == 3:
            on_last_gradient(unit, Unit.reduce, free)
            gather_when_used(module, unit)
    return units
