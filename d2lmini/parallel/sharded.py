"""Sharded data parallelism: ZeRO's three stages (Rajbhandari et al., SC 2020).

stage    kept whole                 sharded over n ranks                     sends, in parameters a rank
  0      all (plain DDP)            nothing                                  all-reduce: 2 (n − 1)/n
  1      parameters, gradients      the optimizer's state                    reduce-scatter, all-gather: 2 (n − 1)/n
  2      parameters                 and gradients                            as 1, each as soon as it is there
  3      nothing                    and parameters                           and gathered once more: 3 (n − 1)/n
"""

import weakref
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.functional import pad


class FlatParameters:
    """A module's parameters as views of one vector, `whole`.

    Zeros pad its end, so that `n` ranks get equal parts of it.
    """

    def __init__(self, module, n):
        self.params, self.n = list(module.parameters()), n
        sizes = [p.numel() for p in self.params]
        flat = torch.cat([p.detach().flatten() for p in self.params])
        self.whole = self.padded(flat)
        pieces = self.whole[: len(flat)].split(sizes)
        for p, piece in zip(self.params, pieces):
            p.data = piece.view(p.shape)

    def padded(self, flat):
        """Return a vector with zeros added until `n` divides its length."""
        return pad(flat, (0, -len(flat) % self.n))

    def free(self):
        """Free the memory of the whole vector; its views stay."""
        self.whole.untyped_storage().resize_(0)

    def allocate(self):
        """Allocate memory for the whole vector again; no values yet."""
        self.whole.untyped_storage().resize_(self.whole.nbytes)


class Unit(FlatParameters):
    """One module's parameters, and this rank's shard of them.

    The optimizer updates `shard`, a view of the whole vector.
    """

    def __init__(self, module, group=None):
        super().__init__(module, dist.get_world_size(group))
        mine = self.whole.chunk(self.n)[dist.get_rank(group)]
        self.shard, self.group = nn.Parameter(mine), group

    def gather(self):
        """All-gather the whole vector from the ranks' shards."""
        self.allocate()
        parts = list(self.whole.chunk(self.n))
        dist.all_gather(parts, self.shard.detach(), self.group)

    def reduce(self):
        """Reduce-scatter the gradients: add their mean to the shard's."""
        flat = torch.cat([p.grad.flatten() for p in self.params])
        for p in self.params:
            p.grad = None
        mean = torch.empty_like(self.shard)
        parts = list(self.padded(flat).div(self.n).chunk(self.n))
        dist.reduce_scatter(mean, parts, group=self.group)
        earlier = self.shard.grad
        self.shard.grad = mean if earlier is None else earlier + mean


def shard(modules, stage, group=None):
    """Shard modules over ranks by ZeRO-1, 2 or 3; return their `Unit`s.

    Train the units' shards. After backward call `reduce` in stage 1; after
    the update call `gather` in stages 1 and 2. Hooks do the rest.
    Raises ValueError for another stage.
    """
    if stage not in (1, 2, 3):
        raise ValueError(f"expected ZeRO stage 1, 2 or 3, got {stage!r}")
    units = [Unit(module, group) for module in modules]
    for module, unit in zip(modules, units):
        if stage > 1:
            on_last_gradient(unit, stage)
        if stage == 3:
            unit.shard.data = unit.shard.detach().clone()
            unit.free()
            module.register_forward_pre_hook(lambda *_, u=unit: u.gather())
            module.register_forward_hook(partial(after_forward, unit))
    return units


def after_forward(unit, module, inputs, output):
    """Reshard a unit until the gradient of its module's output comes."""
    unit.free()
    if output.requires_grad:
        output.register_hook(lambda gradient: unit.gather())


def on_last_gradient(unit, stage):
    """Reduce a unit as soon as backward has made its last gradient."""
    unit_of, left = weakref.ref(unit), [len(unit.params)]

    def ready(p):
        left[0] -= 1
        if left[0] == 0:
            left[0] = len(unit_of().params)
            unit_of().reduce()
            if stage == 3:
                unit_of().free()

    for p in unit.params:
        p.register_post_accumulate_grad_hook(ready)
