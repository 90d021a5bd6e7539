"""Replacing functions of torch below their names: a module may have imported one before, under any name."""

import functools
from types import FunctionType, ModuleType


def is_function_of(owner, own):
    """Return whether `own` is a Python function that torch keeps in a module: one that can be redirected."""
    written_in_torch = isinstance(own, FunctionType) and own.__globals__.get("__name__", "").startswith("torch.")
    return written_in_torch and isinstance(owner, ModuleType)


def original(owner, name):
    """Return what a name stands for, as a function that goes on doing it when torch's is redirected."""
    own = getattr(owner, name, None)
    if not is_function_of(owner, own):
        return own
    twin = FunctionType(own.__code__, own.__globals__, own.__name__, own.__defaults__, own.__closure__)
    twin.__kwdefaults__ = own.__kwdefaults__
    return functools.update_wrapper(twin, own)


def in_cudas_words(function):
    """Return a function whose errors, which torch's C++ or its own Python words, name CUDA's devices for ours."""

    def call(*args, **options):
        try:
            return function(*args, **options)
        except RuntimeError as error:
            text = str(error)
            shown = (
                text.replace("sim:", "cuda:").replace("torch.sim.", "torch.cuda.").replace("SIM device", "CUDA device")
            )
            if shown == text:
                raise
            raise type(error)(shown) from None

    return call


def redirect(stack, function, new):
    """Let calls of a function go to `new` until `stack` is closed."""
    if "_new" in (function.__kwdefaults__ or {}):  # under another name it is redirected already
        return
    stack.callback(_put_back, function, function.__code__, function.__defaults__, function.__kwdefaults__)
    function.__code__ = _call_new.__code__.replace(co_freevars=function.__code__.co_freevars)
    function.__defaults__, function.__kwdefaults__ = None, {"_new": new}


def _put_back(function, code, defaults, options):
    function.__code__, function.__defaults__, function.__kwdefaults__ = code, defaults, options


def _call_new(*args, _new, **options):
    return _new(*args, **options)
