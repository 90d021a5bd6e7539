"""What an operation on operands of known shapes needs and costs: found once, and read at every later call.

The shapes and types of the operands, and the plain numbers that decide a result's shape, make the key. Scalars take no
part: a learning rate that changes at every call must not make a key of its own. An operation whose results depend on
the numbers in its operands has no record.
"""

import torch

from d2lmini.sim.model.work import circumstances

_BY_VALUE = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_BY_VALUE_NAMES = {"_pack_padded_sequence", "_pad_packed_sequence", "_ctc_loss"}  # without the tag that says so
_NO_MATTER = ("number", "float", "Generator", "Storage")
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
    """The records of the operation `func`, whose tensors are at `tensors` and whose lists of tensors at `lists`."""

    def __init__(self, func, tensors, lists):
        self._found, self._tensors, self._lists = {}, tensors, lists
        decide = {place: argument for place, argument in enumerate(func._schema.arguments)
                  if not any(word in str(argument.type) for word in _NO_MATTER)}  # fmt: skip
        self._more = circumstances(func)
        self._names = {argument.name for argument in decide.values()}
        self._plain = tuple(place for place, argument in decide.items()
                            if not argument.kwarg_only and place not in (*tensors, *lists))  # fmt: skip

    def find(self, args, kwargs):
        """Return the `Record` of a call, a new one if there is none; args, kwargs: with the real tensors."""
        given, key = len(args), [*self._more(args)] if self._more else []
        for place in self._tensors:
            if place < given:
                tensor = args[place]
                if isinstance(tensor, _Tensor):
                    key.append(tensor.shape)
                    key.append(tensor.dtype)
                else:
                    key.append(type(tensor))  # None, or a number that stands for a tensor
        for place in self._lists:
            if place < given:
                _collect(args[place], key)
        for place in self._plain:
            if place < given:
                value = args[place]
                key.append(tuple(value) if type(value) is list else value)
        if kwargs:
            _collect([kwargs[name] for name in sorted(kwargs) if name in self._names], key)
        key = tuple(key)
        record = self._found.get(key)
        if record is None:
            if len(self._found) >= _MOST:
                self._found.clear()
            record = self._found[key] = Record()
        return record


def records(func, tensors, lists):
    """Return the `Records` of an operation, or None when its results depend on the numbers in its operands."""
    by_value = func._schema.name.split("::")[1] in _BY_VALUE_NAMES or not _BY_VALUE.isdisjoint(func.tags)
    return None if by_value else Records(func, tensors, lists)


def _collect(values, key):
    for value in values:
        if isinstance(value, torch.Tensor):
            key.append(value.shape)
            key.append(value.dtype)
        elif isinstance(value, (list, tuple)):
            key.append(len(value))
            _collect(value, key)
        else:
            key.append(value)


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
