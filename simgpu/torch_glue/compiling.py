"""``torch.compile`` of programs on simulated GPUs: traced as for any device, then run one operation at a time.

Backends that call a graph's operations, as ``eager`` and ``aot_eager`` do, run on simulated tensors and on the clock.
With ``aot_eager``, whose graphs forward and backward are those that inductor gets, they cost what they do "compiled".
Inductor itself writes code for a device, and has none for this one.
"""

import contextlib
import sys

import torch

from simgpu.device.state import state
from simgpu.device.tensor import SimTensor


def known(own):
    """Return ``torch.compile`` whose dynamo has learnt that ours are ordinary tensors, though of another class."""

    def compile(*args, **kwargs):

        compiled = own(*args, **kwargs)  # loads dynamo, which traces only when the compiled program is called
        teach()
        backends = sys.modules.get("torch._dynamo.backends.debugging")
        if backends and backends.boxed_nop.__module__ != __name__:
            backends.boxed_nop = priced(backends.boxed_nop)
        return compiled

    compile.__doc__ = own.__doc__
    return compile


def teach():
    """Tell dynamo of our class where it is loaded; loading it takes seconds."""
    builder = sys.modules.get("torch._dynamo.variables.builder")
    if builder is None or SimTensor in builder.VariableBuilder._type_dispatch():
        return
    own = builder.infer_subclass_type
    builder.infer_subclass_type = lambda value: None if type(value) is SimTensor else own(value)
    builder.VariableBuilder._type_dispatch()[SimTensor] = builder.VariableBuilder.wrap_tensor
    for room in ("device", "model", "ranks"):  # what runs an operation is not to be traced itself
        sys.modules["torch._dynamo.trace_rules"].add(f"simgpu.{room}")


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
