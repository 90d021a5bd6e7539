"""The functional collectives of torch, ``_c10d_functional``, on tensors of simulated GPUs.

They reach the device's dispatch before the process group, which is therefore handed the real tensors: the rank says
meanwhile that they stand for its device. They are messages, and no kernels, to the clock.
"""

import torch
from torch.utils._pytree import tree_map_only

from d2lmini.sim.device.dispatch import handles
from d2lmini.sim.device.tensor import SimTensor, wrap
from d2lmini.sim.ranks.rank import here


def register():
    """Install the handlers; doing it again changes nothing."""
    names = [name for name in torch._C._dispatch_get_all_op_names() if name.startswith("_c10d_functional::")]
    handles(*(getattr(torch.ops._c10d_functional, name.split("::")[1]).default for name in names))(_functional)


def _functional(func, args, kwargs):
    shells = {}

    def real(tensor):
        shells[id(tensor._real)] = tensor
        return tensor._real

    rank, args = here(), tree_map_only(SimTensor, real, args)
    index = next(iter(shells.values()))._index
    before = rank.on_device if rank else None
    try:
        if rank:
            rank.on_device = True
        out = func(*args, **tree_map_only(SimTensor, real, kwargs))
    finally:
        if rank:
            rank.on_device = before

    def shell(made):
        known = shells.get(id(made))
        return wrap(made, index) if known is None else known

    return tree_map_only(torch.Tensor, shell, out)
