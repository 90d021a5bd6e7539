"""What an operation on operands of known shapes needs and costs: found once, and read at every later call.

An operation whose results depend on the numbers in its operands has a new record at every call.
"""

import torch

from simgpu.accounting.op_work import cost_switches
from simgpu.device import placement_rules

_BY_VALUE = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_BY_VALUE_NAMES = {"_pack_padded_sequence", "_pad_packed_sequence", "_ctc_loss"}  # without the tag that says so
_MOST = 2000  # of one operation; past that they are found again


class Record:
    """One operation on operands of known shapes.

    Attributes:
        needs: The bytes of its new results; None until it has run once.
        cost: What `Clock.price` returned for it.
        clock: The clock that said so.
    """

    __slots__ = ("clock", "cost", "needs")

    def __init__(self):
        self.needs = self.cost = self.clock = None


class Records:
    """The records of the operation `func`; keep: whether they serve later calls, if its results allow it."""

    def __init__(self, func, keep):
        self.keep = keep and placement_rules.name(func) not in _BY_VALUE_NAMES and _BY_VALUE.isdisjoint(func.tags)
        self._found, self._more = {}, cost_switches(func)

    def find(self, key, args):
        """Return the `Record` of a call, a new one if there is none; key: as of `operands`, args: with real tensors."""
        if not self.keep:
            return Record()
        if self._more:
            key += self._more(args)
        key = tuple(key)
        record = self._found.get(key)
        if record is None:
            if len(self._found) >= _MOST:
                self._found.clear()
            record = self._found[key] = Record()
        return record


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
