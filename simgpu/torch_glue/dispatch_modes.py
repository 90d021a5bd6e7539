"""Collectives as torch's dispatch modes see them: CommDebugMode counts them, a profiler of operations names them.

A group of NCCL or gloo calls an operation of ``c10d`` for each, which passes through the modes that are open; our
groups are called by Python and by torch's C++ code directly. What a group does inside is its own: no mode sees that.
"""

import functools

import torch

from simgpu.torch_glue import not_differentiable

# A torch without it refuses modes on ranks: see the row in `features`.
_open_modes = getattr(torch._C, "_len_torch_dispatch_stack", lambda: 0)


def as_operation(name):
    """Return a decorator: calls of a group's method are shown to dispatch modes as the operation ``c10d::name``."""

    def decorate(method):
        @functools.wraps(method)
        def called(group, *args, **options):
            if not _open_modes():
                not_differentiable.note(name, args)
                return method(group, *args, **options)
            run = functools.partial(method, group, *args, **options)
            return _Operation(getattr(torch.ops.c10d, name).default, run)(*args)

        return called

    return decorate


class _Operation:
    """Stands for an operation of torch: a mode that calls it hands it on to the next one, the last carries it out."""

    __class__ = property(lambda self: torch._ops.OpOverload)

    def __init__(self, operation, run):
        self._operation, self._run = operation, run

    def __getattr__(self, name):
        return getattr(self._operation, name)

    def __str__(self):
        return str(self._operation)

    __repr__ = __str__

    def __eq__(self, other):
        return self is other or other == self._operation

    def __hash__(self):
        return hash(self._operation)

    def __call__(self, *args, **options):
        from torch.utils._python_dispatch import _pop_mode_temporarily

        if not _open_modes():
            return self._run()
        with _pop_mode_temporarily() as mode:
            traces = getattr(mode, "_mode_key", None) is not None  # one of torch's own, for tensors of its own
            return self(*args) if traces else mode.__torch_dispatch__(self, (), args, {})
