"""Forward pass and loss of a replica as one function, as it is or compiled by ``torch.compile``.

With a mode such as "reduce-overhead" a CUDA GPU then replays a recorded CUDA graph instead of launching operation after
operation. A graph writes its results into the same memory at every replay, so what must outlive the next one is copied:
the loss, which is read many batches later, and gradients that wait for another batch or another replica.
"""

import itertools
import types

import torch

RECORDED = {"cuda-graph": None, "compiled-cuda-graph": "default"}  # what `recording` does -> the mode underneath
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", *RECORDED)  # of torch.compile
_numbers = itertools.count()


def check(mode, devices, exchanges):
    """Raise ValueError unless `mode`, None or one of `MODES`, can serve on `devices`.

    exchanges: whether the replicas exchange tensors in the middle of their forward pass.
    """
    if mode is None:
        return
    if mode not in MODES:
        raise ValueError(f"compile: expected one of {', '.join(MODES)}, or None, got {mode!r}")
    for device in devices:
        if device.type == "sim":
            raise ValueError(f"compile={mode}: simulated GPUs such as {device} run operations one at a time, so "
                             "nothing can be compiled: leave compile out, or train on other devices")  # fmt: skip
    if exchanges:
        raise ValueError(f"compile={mode}: replicas whose batch norms are synchronised exchange tensors on their "
                         "way, which cannot be compiled: leave compile out")  # fmt: skip


def forward_and_loss(modules, losses, mode):
    """Return for each replica a function of a shard (X [n, …], y [n]) that gives ``loss(module(X), y)``.

    Compiled code is made when a shard of a new size comes first, which takes seconds, and depends on the sizes alone.
    Its sums may round differently and its random numbers, as of dropout, are others than without compiling.
    """
    mode = RECORDED.get(mode, mode)
    functions = [_composed(*pair) for pair in zip(modules, losses, strict=True)]
    return functions if mode is None else [_compiled(function, mode) for function in functions]


def keep_gradients(parameters):
    """Copy the gradients out of memory that a CUDA graph will write to again."""
    for p in parameters:
        if p.grad is not None:
            p.grad = p.grad.clone()


def _composed(module, loss):
    def forward_and_loss(X, y):
        return loss(module(X), y)

    return forward_and_loss


def _compiled(function, mode):
    # dynamic=False: else the short last batch would turn the code into code for any size, which no graph serves well.
    made = torch.compile(_with_own_code(function), mode=mode, dynamic=False)

    def forward_and_loss(X, y):
        try:
            return made(X, y).clone()
        except torch._dynamo.exc.BackendCompilerFailed as error:
            raise RuntimeError(f"compile={mode}: torch.compile failed: {_first_line(error.inner_exception)}") from error

    return forward_and_loss


def _first_line(error):
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _with_own_code(function):
    """Return the function with a code object of its own.

    torch keeps what it compiles by code object, and stops compiling at 8 versions of one: all replicas of all trainers
    together would soon have more, one for each model, device and size.
    """
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    return types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
