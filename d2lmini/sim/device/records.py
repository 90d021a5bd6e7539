"""What an operation on operands of known shapes needs and costs: found once, and read at every later call.

The shapes and types of the operands, and the plain numbers that decide a result's shape, make the key. Scalars take no
part but with their type: a learning rate that changes at every call must not make a key of its own. An operation whose
results depend on the numbers in its operands has a new record at every call.
"""

import torch

from d2lmini.sim.device import rules
from d2lmini.sim.model.work import circumstances

_BY_VALUE = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_BY_VALUE_NAMES = {"_pack_padded_sequence", "_pad_packed_sequence", "_ctc_loss"}  # without the tag that says so
_SCALARS = ("number", "float", "Generator", "Storage")
_MOST = 2000  # of one operation; past that they are found again
_Tensor = torch.Tensor


class Record:
    """One operation on operands of known shapes.

    needs: the bytes of its new results, None until it has run once. cost: what `clock` asks for it.
    """

    __slots__ = ("clock", "cost", "needs")

    def __init__(self):
        self.needs = self.cost = self.clock = None


class Records:
    """The records of the operation `func`; keep: whether they serve later calls, if its results allow it."""

    def __init__(self, func, keep):
        self.keep = keep and rules.name(func) not in _BY_VALUE_NAMES and _BY_VALUE.isdisjoint(func.tags)
        self._found, self._more = {}, circumstances(func)
        self._parts = [_part(str(argument.type)) for argument in func._schema.arguments if not argument.kwarg_only]
        self._named = {argument.name: _part(str(argument.type)) for argument in func._schema.arguments}

    def find(self, args, kwargs):
        """Return the `Record` of a call, a new one if there is none; args, kwargs: with the real tensors."""
        if not self.keep:
            return Record()
        key = self._more(args) if self._more else []
        for value, part in zip(args, self._parts):
            if isinstance(value, _Tensor):
                key += value.shape, value.dtype
            else:
                key.append(part(value))
        for name, value in kwargs.items():
            key += name, (value.shape, value.dtype) if isinstance(value, _Tensor) else self._named[name](value)
        key = tuple(key)
        record = self._found.get(key)
        if record is None:
            if len(self._found) >= _MOST:
                self._found.clear()
            record = self._found[key] = Record()
        return record


def _part(kind):
    """Return the function that gives an argument's part of a key; kind: its type in the schema, when no tensor."""
    if "List[" in kind and "Tensor" in kind:
        return _shapes
    return type if "Tensor" in kind or any(word in kind for word in _SCALARS) else _plain


def _shapes(tensors):
    return None if tensors is None else tuple(None if t is None else (t.shape, t.dtype) for t in tensors)


def _plain(value):
    return tuple(value) if type(value) is list else value


def fresh_bytes(out, args, kwargs):
    """Return the bytes of the storages of results that are not an operand's."""
    given = {storage._cdata for storage in _storages((args, kwargs.values()))}
    return sum(storage.nbytes() for storage in _storages((out,)) if storage._cdata not in given)


def _storages(values):
    for value in values:
        if isinstance(value, torch.Tensor):
            if value.layout is torch.strided:  # others are refused before they are counted
                yield value.untyped_storage()
        elif isinstance(value, (list, tuple)):
            yield from _storages(value)
