"""A tensor that moves between the host and a simulated GPU and stays the same object, as parameters do.

torch changes what a tensor holds only between tensors of one class in C++, and ours are of another. So the two objects
exchange what they are: whoever holds the parameter, an optimizer or a weak reference, finds it on its new device.
"""

import torch

from simgpu.device.state import state

_OURS = ("_real", "_index", "_is_param")
_HOOKS = ("_backward_hooks", "_post_accumulate_grad_hooks")


def become(tensor, value):
    """Make `tensor` hold what `value` holds, on its device, as assigning to ``data`` does; the rest stays as it was."""
    with torch.no_grad():
        new = value.detach().requires_grad_(tensor.requires_grad)
        if isinstance(tensor, torch.nn.Parameter):
            new = torch.nn.Parameter(new, tensor.requires_grad)
        if tensor.grad is not None:
            clock, state.clock = state.clock, None  # CUDA's would stay where it is; torch lets ours not
            try:
                gradient, data = tensor.grad.to(new.device), new.data
                new.data = gradient  # whose shape FSDP1's whole parameters have not: they keep their shard's
                new.grad, new.data = gradient, data
            finally:
                state.clock = clock
        exchange(tensor, new)


def exchange(a, b):
    """Let `a` be what `b` was, with its own hooks and the attributes that a program gave it, and `b` what `a` was."""
    a.__class__, b.__class__ = type(b), type(a)
    given = {name: value for name, value in a.__dict__.items() if name not in _OURS}
    a.__dict__, b.__dict__ = {**b.__dict__, **given}, a.__dict__
    torch._C._swap_tensor_impl(a, b)
    for name in _HOOKS:
        if getattr(a, name):  # the object keeps them, but what calls them went
            setattr(a, name, getattr(a, name))
