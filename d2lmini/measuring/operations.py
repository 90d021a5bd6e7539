"""Every operation of torch inside a block, handed to a function, and the tensors in what it was given."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class Reporting(TorchDispatchMode):
    """Hands every operation inside the block to ``report(func, args, kwargs, out)``."""

    def __init__(self, report):
        super().__init__()
        self.report = report

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        out = func(*args, **(kwargs or {}))
        self.report(func, args, kwargs or {}, out)
        return out


def tensors(values):
    """Return the tensors in any nest of values, each once."""
    return list({id(t): t for t in tree_leaves(values) if isinstance(t, torch.Tensor)}.values())
