"""The device guard that torch's autograd asks what kind of device ``sim`` is, and the errors that pass by it.

torch offers a guard that Python code can implement, but calls it from C++ functions that may not throw. Two things
would end the process there. An interrupt may strike while Python code runs: so no Python code runs, only C functions
strung together with iterators, and between the look-up of the answer and its call `inside` makes the handler wait.
And when an operation or a hook raises during backward, Python's error is still pending while the guard is asked; a call
that begins with an error pending fails in any case, and a failure ends the process. So during backward the guard takes
the pending error away and keeps it, and `lost` gives it back once torch has come to a halt. Elsewhere none is pending,
and the guard, which torch asks twice for each operation that it records for backward, answers in a third of the time.
"""

import contextlib
import ctypes
import operator
import threading
from functools import partial
from itertools import repeat, starmap

import torch

from simgpu.device.signals import inside, marked

_TYPE = torch._C._autograd.DeviceType.PrivateUse1
_Addresses = ctypes.c_void_p * 3  # of an error's type, value and traceback
_pending_error = _Addresses()
# By index, not by name: what has a name is shared, and others, such as numba.cuda, declare its arguments differently.
_fetch = ctypes.pythonapi["PyErr_Fetch"]  # takes a pending error away; gives null pointers when there is none
_give_up = ctypes.pythonapi["Py_DecRef"]
_fetch.restype = _give_up.restype = None
_kept = set()  # (thread, the addresses as bytes)


def _lookups(answer):
    """Return an iterator of C functions only: each step keeps the error that is pending, if any, and gives `answer`."""
    places = range(0, ctypes.sizeof(_Addresses), ctypes.sizeof(ctypes.c_void_p))
    fetched = starmap(_fetch, repeat(tuple(ctypes.byref(_pending_error, place) for place in places)))
    thread, addresses = (starmap(f, repeat(())) for f in (threading.get_ident, memoryview(_pending_error).tobytes))
    kept = map(_kept.add, zip(thread, addresses))
    return map(operator.itemgetter(2), zip(fetched, kept, marked(answer)))


def _answers():
    """Return an iterator of C functions only: each step gives the type."""
    return map({None: _TYPE}.__getitem__, starmap(inside.clear, repeat(())))


class Guard(torch._C._acc.DeviceGuard):
    """What torch registers; `type_` is the only question that it lets Python answer. It is looked up, then called."""

    type_ = _quick = property(partial(next, marked(_answers().__next__)))
    _careful = property(partial(next, _lookups(_answers().__next__)))
    _lock, _backwards = threading.Lock(), 0

    @classmethod
    @contextlib.contextmanager
    def careful(cls):
        """Take pending errors away while this context manager is open, in any thread."""
        with cls._lock:
            cls.type_ = cls._careful
            cls._backwards += 1
        try:
            yield
        finally:
            with cls._lock:  # where an interrupt strikes here the guard stays careful
                cls._backwards -= 1
                if not cls._backwards:
                    cls.type_ = cls._quick


def lost(raised):
    """Return the error that the guard took away, so that torch could raise only SystemError; None if `raised` is it."""
    error = _pending()
    return error if isinstance(raised, SystemError) else None


def _pending():
    """Return the error that the guard took away from the calling thread, or None; nothing keeps it any longer."""
    mine = [entry for entry in _kept if entry[0] == threading.get_ident() and any(entry[1])]
    if not mine:
        return None
    _kept.difference_update(mine)
    (kind, value, traceback), *_ = [[*map(_take, _Addresses.from_buffer_copy(entry[1]))] for entry in mine]
    if not isinstance(value, BaseException):  # before Python 3.12 an error raised in C need not be made yet
        value = kind() if value is None else kind(*value) if isinstance(value, tuple) else kind(value)
    return value if traceback is None else value.with_traceback(traceback)


def _take(address):
    """Return the object at an address whose reference is ours, and give that reference up."""
    if not address:
        return None
    thing = ctypes.cast(address, ctypes.py_object).value
    _give_up(ctypes.c_void_p(address))
    return thing
