"""Forward pass and loss of a replica as one function, as it is or compiled by ``torch.compile``.

With a mode such as "reduce-overhead" a CUDA GPU then replays a recorded CUDA graph instead of launching operation after
operation. A graph writes its results into the same memory at every replay, so what must outlive the next one is copied:
the loss, which is read many batches later, and gradients that wait for another batch or another replica.
"""

import itertools
import types

import torch

from d2lmini.trainer.errors import first_line

RECORDED = {"cuda-graph": None, "compiled-cuda-graph": "default"}  # what `cuda_graphs` does -> the mode underneath
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs", *RECORDED)  # of torch.compile
_numbers = itertools.count()


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
            raise RuntimeError(f"compile={mode}: torch.compile failed: {first_line(error.inner_exception)}") from error

    return forward_and_loss


def _with_own_code(function):
    """Return the function with a code object of its own.

    torch keeps what it compiles by code object, and stops compiling at 8 versions of one: all replicas of all trainers
    together would soon have more, one for each model, device and size.
    """
    code = function.__code__.replace(co_name=f"{function.__name__}_{next(_numbers)}")
    return types.FunctionType(code, function.__globals__, code.co_name, None, function.__closure__)
