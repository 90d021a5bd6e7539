"""torch's own operations for collectives, on tensors of simulated GPUs.

    _c10d_functional    the functional collectives: they reach the device's dispatch before the process group
    c10d                the calls of a group of real processes, such as gloo's, whose simulated GPUs know only their own

Both are handed the real tensors. To the clock they are messages, and no kernels: a simulated rank says meanwhile that
its group's tensors stand for its device, and `CommunicationCosts` does the rest; a process of its own cannot know when
the others are ready, so its current stream is busy as long as a collective takes once all are there.
"""

import torch
import torch.distributed as dist

from simgpu.accounting import communication
from simgpu.device.dispatch import handles_namespaces
from simgpu.device.state import state
from simgpu.device.tensor import SimTensor, wrap
from simgpu.ranks.communication_costs import CommunicationCosts
from simgpu.ranks.tensor_lists import nbytes as nbytes_of
from simgpu.torch_glue import c10d
from simgpu.torch_glue.here import here

_KINDS = {
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "reduce": "reduce",
    "broadcast": "broadcast",
    "gather": "gather",
    "scatter": "scatter",
    "send": "send",
    "recv": "send",
}


def register():
    """Install the handlers; doing it again changes nothing."""
    handles_namespaces(_collective, "_c10d_functional", "c10d")


def _collective(func, args, kwargs):
    if func.name().endswith("_wrap_tensor_autograd"):
        return c10d.late(*args)
    if kwargs and func.name().endswith("_out"):  # which in C++ asks for a group of C++
        made = func.name().removesuffix("_out").split("::")[1]
        result = getattr(torch.ops._c10d_functional, made)(*args)
        return kwargs["out"].copy_(torch.ops._c10d_functional.wait_tensor(result))
    wrappers = {}

    def real(tensor):
        wrappers[id(tensor._real)] = tensor
        return tensor._real

    (reals, kwargs), rank = c10d.tree_map_only(SimTensor, real, (args, kwargs)), here()
    index = next(iter(wrappers.values()))._index
    if rank is None:
        out = func(*reals, **kwargs)
        _price(func, args, index)
    else:
        before, rank.stands_for = rank.stands_for, index
        try:
            out = c10d.run_with_numbers(func, *reals, **kwargs)
        finally:
            rank.stands_for = before

    def rewrapped(made):
        known = wrappers.get(id(made))
        return wrap(made, index) if known is None else known

    return c10d.tree_map_only(torch.Tensor, rewrapped, out)


def _price(func, args, index):
    """Let the device's current stream be busy as long as this process's part of a collective takes."""
    bare = func.name().split("::")[1].strip("_")
    kind = next((kind for start, kind in _KINDS.items() if bare.startswith(start)), None)
    if kind is None or state.clock is None:  # a wait, or a barrier
        return
    nbytes = max(nbytes_of([arg]) for arg in args[:2] if isinstance(arg, (list, tuple, torch.Tensor)))
    took = CommunicationCosts(state.clock).alone(kind, min(dist.get_world_size(), state.machine.count), nbytes)
    begin = communication.depart(state.clock, index)
    communication.hold(state.clock, state.clock.current_stream(index), begin + took)
