"""How much memory a computation takes, found without computing it: tensors of the meta device, counted as if real.

    with Footprint() as footprint:
        step(net, X)          # module and tensors made inside the block, or named to `hold`
    footprint.peak        # bytes; footprint.history: what was in use after each operation

The meta device knows shapes and has no numbers. Counted is what a simulated GPU counts, by the same rules
(`sim.Memory`): each storage from when it is made until nothing uses it, in blocks of 512 bytes, and an error when the
capacity is not enough. So a network can be tried on a card of any size, in milliseconds.
"""

import torch
from torch.utils._pytree import tree_leaves

from d2lmini import sim
from d2lmini.measuring.operations import Reporting

_ANY = 2**62  # bytes: more than any machine has


class Footprint(Reporting):
    """Counts the memory of meta tensors made inside the block; `history` has the bytes in use after each operation."""

    def __init__(self, capacity=None):
        """Set the capacity in bytes; beyond it torch.OutOfMemoryError is raised. None: there is no limit."""
        super().__init__(self._count)
        self._memory = sim.Memory(0, _ANY if capacity is None else capacity)
        self.history = []

    def hold(self, *things):
        """Count tensors that were made outside; `things` are modules, tensors, or nests of these."""
        for thing in tree_leaves(things):
            if isinstance(thing, torch.nn.Module):
                self.hold(list(thing.parameters()), list(thing.buffers()))
            elif isinstance(thing, torch.Tensor) and thing.is_meta:
                self._memory.add(thing.untyped_storage())

    @property
    def allocated(self):
        """The bytes in use."""
        return self._memory.allocated

    @property
    def peak(self):
        """The most bytes that were in use at once."""
        return self._memory.peak

    def _count(self, func, args, kwargs, out):
        self.hold(out)
        self.history.append(self.allocated)


def largest(fits, limit=2**30, good=0):
    """Return the largest n from `good` to `limit` with fits(n).

    fits must hold up to some n and nowhere above; `good` is not tried.
    """
    bad = 2 * good or 1
    while bad <= limit and fits(bad):
        good, bad = bad, 2 * bad
    bad = min(bad, limit + 1)
    while bad - good > 1:
        middle = (good + bad) // 2
        good, bad = (middle, bad) if fits(middle) else (good, middle)
    return good
