"""Tensors of simulated GPUs sent to another process, as ``torch.multiprocessing`` sends CUDA's: the memory is shared.

Each process counts what it holds, and its simulated GPUs know nothing of another's.
"""

from multiprocessing.reduction import ForkingPickler

import torch

from d2lmini.sim.device.state import state
from d2lmini.sim.device.tensor import SimTensor, wrap


def register():
    """Let queues and pipes take our tensors; only once a process."""
    ForkingPickler.register(SimTensor, _reduce)


def _reduce(tensor):
    if tensor.requires_grad and not tensor.is_leaf:
        raise RuntimeError("expected a tensor that is a leaf or needs no gradient for another process, got a result: "
                           "autograd ends at the process, so send tensor.detach()")  # fmt: skip
    return _rebuild, (tensor._real, tensor._index, tensor.requires_grad, isinstance(tensor, torch.nn.Parameter))


def _rebuild(real, index, requires_grad, is_parameter):
    tensor = wrap(real, state.check(index)).requires_grad_(requires_grad)
    return torch.nn.Parameter(tensor, requires_grad) if is_parameter else tensor
