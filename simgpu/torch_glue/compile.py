"""``torch.compile`` of programs on simulated GPUs: traced as for any device, then run one operation at a time.

Backends that call a graph's operations, as ``eager`` and ``aot_eager`` do, run on simulated tensors and on the clock.
With ``aot_eager``, whose graphs forward and backward are those that inductor gets, they cost what they do "compiled".
Inductor itself writes code for a device, and has none for this one.

On ranks torch builds a rank's number into the code, with no guard against another's; and it compiles under a lock,
which a process has for itself. So each rank has a place of its own for what it compiles, and one that waits for others
while it compiles lets them run.
"""

import contextlib
import functools
import sys

import torch
from torch._dynamo import config, eval_frame, trace_rules
from torch._dynamo.variables import builder

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor
from simgpu.torch_glue.here import here


def hidden():
    """Keep dynamo from tracing what runs an operation or a collective; once a process.

    It does trace what stands for torch's factories, as these are part of a program's graph.
    """
    for room in ("accounting", "device", "ranks", *(f"torch_glue.{file}" for file in ("here", "c10d", "dtensor"))):
        trace_rules.add(f"simgpu.{room}")


def with_ours(types):
    """Return the classes that traced programs may hold, with ours."""
    return (*types, SimTensor)


def no_subclass(own):
    """Return dynamo's question of what class derived from ordinary tensors a value has: ours has none."""
    return lambda value: None if type(value) is SimTensor else own(value)


def dispatching(own):
    """Return dynamo's table of how values of each class are followed, in which ours are tensors."""

    @functools.cache
    def type_dispatch():
        return {**own(), SimTensor: builder.VariableBuilder.wrap_tensor}

    return staticmethod(type_dispatch)


def current_stream(own):
    """Return the function by which compiled code asks for a device's current stream."""

    @torch.compiler.disable  # else it would itself be compiled, and ask again
    def get_current_stream(device):
        return torch.accelerator.current_stream(device) if state.is_accelerator else own(device)

    return get_current_stream


def priced(own):
    """Return aot_eager's compiler, whose graphs the clock takes for compiled ones."""

    def compile(graph, inputs):
        run = own(graph, inputs)

        def timed(args):
            with state.clock.run_as("compiled") if state.clock else contextlib.nullcontext():
                return run(args)

        timed._boxed_call = True
        return timed

    return compile


def without_ours(own):
    """Return inductor's entry, which refuses a graph on simulated GPUs."""

    def compile(backend, graph, inputs):
        if any(isinstance(x, torch.Tensor) and x.is_sim for x in inputs):
            raise NotImplementedError(
                'expected torch.compile(..., backend="eager") or "aot_eager" on simulated GPUs, '
                "got inductor, which writes code for real devices only"
            )
        return own(backend, graph, inputs)

    return compile


# -- ranks -----------------------------------------------------------------------------------------------------------


def region(own):
    """Return the function that says where compiled code is kept, which is a place of its own for each rank."""

    def set_region(number):
        rank = here()
        if rank is None or number >= 0:
            return own(number)
        if rank.region is None:
            rank.region = next(eval_frame._next_isolate_recompiles_id)
        return own(rank.region)

    return set_region


class Locks:
    """Stands for torch's lock, `own`: that of the ranks in a rank."""

    def __init__(self, own):
        self._own = own

    def __enter__(self):
        (here().world.compiling if here() else self._own).__enter__()

    def __exit__(self, *error):
        (here().world.compiling if here() else self._own).__exit__(*error)


def each_for_itself():
    """Set what dynamo keeps for each thread, in a rank's.

    Its cache of results does not tell the ranks' devices apart, and its limit counts what all ranks have ever compiled
    of a function.
    """
    config.fake_tensor_cache_enabled = False
    config.accumulated_recompile_limit = sys.maxsize
