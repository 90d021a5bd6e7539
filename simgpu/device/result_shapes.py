"""What an operation's results will take, found before it runs, so that what cannot fit never takes the host's memory.

Few operations return more numbers than the product of how many their operands have: that is what broadcasting, a
product of matrices or a gather come to at most. As long as even this fits, nothing else is looked at, which costs a
fraction of a microsecond. Where it does not, or where plain numbers decide the size, as in ``repeat``, the operation is
first run on the meta device, whose tensors have shapes and no bytes. Once it has run, its record says what it needs.
"""

import math
from collections import defaultdict
from functools import partial

import torch

from simgpu.device import placement_rules

_WIDEST = 16  # bytes of the widest number, complex128
_STRETCHES = {  # besides paddings and upsamplings: plain numbers decide how large the result is
    "repeat",
    "arange",
    "linspace",
    "logspace",
    "range",
    "eye",
    "randperm",
    "diagonal_backward",
    "select_backward",
    "slice_backward",
    "unfold_backward",
    "im2col",
    "col2im",
    "multinomial",
    "convolution",
    "embedding_dense_backward",
    "grid_sampler",
    "affine_grid_generator",
    "histc",
    "vander",
    "_pad_packed_sequence",
    "max_unpool2d",
    "max_unpool3d",
    "_fft_c2r",
}
_SQUARES = {"diag_embed"}  # as many rows as columns as its operand has numbers; ``torch.diag`` is made of it


class Sizes:
    """How large the results of the operation `func` get."""

    def __init__(self, func):
        name = placement_rules.name(func)
        self._pointwise = torch.Tag.pointwise in func.tags
        # Where the operands' sizes alone do not bound the results: how often to multiply them, besides the numbers.
        self._stretches = 2 if name in _SQUARES else int(name in _STRETCHES or "pad" in name or "upsample" in name)

    def check(self, func, call, args, kwargs, memory):
        """Raise torch.OutOfMemoryError if the results are sure not to fit into a `Allocator`; as in `needed`."""
        values, free = (v for a in args for v in (a if isinstance(a, (list, tuple)) else (a,))), memory.free()
        operands = [value for value in values if isinstance(value, torch.Tensor)]  # None and numbers may stand for some
        if self._stretches:
            fit = stretched_fits(operands * self._stretches, args, free)
        else:
            fit = fits(operands, free) or (self._pointwise and broadcast_fits(operands, free))
        if not fit:
            memory.check(needed(func, call, args, kwargs))


def _running(x, dim, *, dtype=None):
    """Find a running sum's or product's shape; torch's own way squares the length, which overflows."""
    kept = x.is_floating_point() or x.is_complex()
    return torch.empty(x.shape, dtype=dtype or (x.dtype if kept else torch.int64), device="meta")


_KNOWN_SHAPES = {torch.ops.aten.cumsum.default: _running, torch.ops.aten.cumprod.default: _running}


def fits(tensors, free):
    """Return whether a result with as many numbers as these operands multiplied is sure to fit into `free` bytes."""
    size = _WIDEST * math.prod(tensor.numel() for tensor in tensors)
    return 0 < size <= free  # no numbers in an operand may mean many in the result: [n, 0] @ [0, n]


def broadcast_fits(tensors, free):
    """Return whether a result of the shape that these operands broadcast to is sure to take at most `free` bytes."""
    shapes = {tensor.shape for tensor in tensors}
    return _WIDEST * math.prod(torch.broadcast_shapes(*shapes)) <= free


def stretched_fits(tensors, args, free):
    """As `fits`, for results that grow with every plain number among the arguments too."""
    numbers = (n for a in args for n in (a if isinstance(a, (list, tuple)) else (a,)) if type(n) is int)
    return fits(tensors, free // math.prod(max(1, abs(n)) for n in numbers))


def needed(func, call, args, kwargs):
    """Return the bytes that new results take, or 0 when only running the operation tells.

    Args:
        func: The operation.
        call: What runs it.
        args, kwargs: The real tensors and all else.
    """
    call = _KNOWN_SHAPES.get(func, call)
    kwargs = {name: value for name, value in kwargs.items() if not isinstance(value, torch.Generator)}
    try:
        metas = torch.utils._pytree.tree_map_only(torch.Tensor, _meta, (list(args), kwargs))
        given = {
            id(t): t.untyped_storage().nbytes()
            for t in torch.utils._pytree.tree_leaves(metas)
            if isinstance(t, torch.Tensor)
        }
        outs = torch.utils._pytree.tree_leaves(call(*metas[0], **metas[1]))
    except Exception:  # it depends on values, has no kernel for shapes alone, or is wrong: running it will tell
        return 0
    return sum(t.untyped_storage().nbytes() - given.get(id(t), 0) for t in outs if isinstance(t, torch.Tensor))


def _meta(tensor):
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device="meta")


# -- results without numbers -----------------------------------------------------------------------------------------


_MOST = 2000  # of one operation; past that they are found again


class Results:
    """The results of one operation whose results are all new."""

    def __init__(self):
        self._known = {}

    def make(self, call, args, kwargs):
        """Return what ``call(*args, **kwargs)`` does, args and kwargs being those of the real tensors."""
        key = torch.get_default_dtype(), *_key(args), *_key(kwargs.items())
        known = self._known.get(key)
        if known is None:
            out = call(*args, **kwargs)
            if len(self._known) < _MOST:
                self._known[key] = _told(out)
            return out
        return known() if callable(known) else call(*args, **kwargs)


_factories = defaultdict(Results)  # by operation


def made(func, args, kwargs):
    """Return what ``func(*args, **kwargs)`` does, an operation with a keyword `device` whose result is new."""
    if kwargs["device"].type != "meta":
        return func(*args, **kwargs)
    return _factories[func._op].make(func, args, kwargs)


def _key(values):
    """Yield what decides the results' shapes: of a floating-point number its type alone."""
    for value in values:
        if isinstance(value, torch.Tensor):
            yield value.shape
            yield value.stride()
            yield value.dtype
        elif isinstance(value, (list, tuple)):
            yield len(value)
            yield from _key(value)
        else:
            yield type(value)
            if type(value) is not float:
                yield value


def _told(out):
    """Return a function that makes such results; False where tensors share memory or have numbers."""
    every = list(out) if isinstance(out, (list, tuple)) else [out]
    outs = [t for t in every if isinstance(t, torch.Tensor)]
    new = all(t.is_meta and t.storage_offset() == 0 for t in outs)
    if not new or len({t.untyped_storage()._cdata for t in outs}) < len(outs):
        return False
    shapes = [(t.shape, t.stride(), t.dtype) if isinstance(t, torch.Tensor) else t for t in every]
    made = [t for t in map(_made, shapes) if isinstance(t, torch.Tensor)]
    if [t.untyped_storage().nbytes() for t in made] != [t.untyped_storage().nbytes() for t in outs]:
        return False
    if isinstance(out, torch.Tensor):
        return partial(_made, shapes[0])
    return partial(_all, list if type(out) is list else tuple, shapes)  # which keeps no result alive


def _all(kind, shapes):
    return kind(map(_made, shapes))


def _made(shape):
    if not isinstance(shape, tuple):  # a result that is no tensor
        return shape
    size, stride, dtype = shape
    return torch.empty_strided(size, stride, dtype=dtype, device="meta")
