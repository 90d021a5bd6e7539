"""Replicas that share out what they keep: ZeRO's three levels (Rajbhandari et al., SC 2020).

level    kept whole                 cut in n parts                           moves, in parameters a rank
  0      all                        nothing                                  all-reduce: 2 (n − 1)/n
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

    Zeros are added at its end, so that it can be cut into `n` equal parts.
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
        """Give the whole vector's memory back."""
        self.whole.untyped_storage().resize_(0)

    def take(self):
        """Take memory for the whole vector again, without numbers."""
        self.whole.untyped_storage().resize_(self.whole.nbytes)


class Unit(FlatParameters):
    """One module's parameters, and this rank's part of them.

    `shard` is that part, a parameter of its own: the optimizer's.
    """

    def __init__(self, module, group=None):
        super().__init__(module, dist.get_world_size(group))
        mine = self.whole.chunk(self.n)[dist.get_rank(group)]
        self.shard, self.group = nn.Parameter(mine.clone()), group

    def gather(self):
        """Get the whole vector from the ranks."""
        self.take()
        parts = list(self.whole.chunk(self.n))
        dist.all_gather(parts, self.shard.detach(), self.group)

    def reduce(self):
        """Add the mean of the ranks' gradients to the shard's gradient."""
        flat = torch.cat([p.grad.flatten() for p in self.params])
        for p in self.params:
            p.grad = None
        mean = torch.empty_like(self.shard)
        parts = list(self.padded(flat).div(self.n).chunk(self.n))
        dist.reduce_scatter(mean, parts, group=self.group)
        earlier = self.shard.grad
        self.shard.grad = mean if earlier is None else earlier + mean


def shard(modules, level, group=None):
    """Cut modules over replicas and return their `Unit`s, at ZeRO 1 to 3.

    Train the units' shards. After backward call `reduce` at level 1; after
    the update call `gather` at levels 1 and 2. Hooks do the rest.
    Raises ValueError for another level.
    """
    if level not in (1, 2, 3):
        raise ValueError(f"expected ZeRO level 1, 2 or 3, got {level!r}")
    units = [Unit(module, group) for module in modules]
    for module, unit in zip(modules, units):
        if level > 1:
            on_last_gradient(unit, level)
        if level == 3:
            unit.free()
            module.register_forward_pre_hook(lambda *_, u=unit: u.gather())
            module.register_forward_hook(partial(after_forward, unit))
    return units


def after_forward(unit, module, inputs, output):
    """Free a unit until the gradient of its module's output comes."""
    unit.free()
    if output.requires_grad:
        output.register_hook(lambda gradient: unit.gather())


def on_last_gradient(unit, level):
    """Have a unit reduced when backward has made its last gradient."""
    unit_of, left = weakref.ref(unit), [len(unit.params)]

    def ready(p):  # a hook that held the unit would keep it for ever
        left[0] -= 1
        if left[0] == 0:
            left[0] = len(unit_of().params)
            unit_of().reduce()
            if level == 3:
                unit_of().free()

    for p in unit.params:
        p.register_post_accumulate_grad_hook(ready)
