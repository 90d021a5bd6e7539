"""What a program does with its own process: its number, signals to itself, and what it registers for its end.

Ranks are threads of one process, whose number and signals are the run's. A rank has a number of its own, larger than
any that the system gives, and a signal that a program sends to itself calls the rank's own handler.
"""

import atexit
import os
import signal
import sys

from simgpu.ranks.modules import is_programs
from simgpu.torch_glue.here import RANK_PIDS, here

_REGISTER, _SIGNAL, _GETSIGNAL, _RAISE = atexit.register, signal.signal, signal.getsignal, signal.raise_signal
_KILL, _GETPID = os.kill, os.getpid


def entries():
    """Yield (owner, name, what takes its place)."""
    yield atexit, "register", _register
    yield signal, "signal", _signal
    yield signal, "getsignal", _getsignal
    yield signal, "raise_signal", _raise_signal
    yield os, "kill", _kill
    yield os, "getpid", _getpid


def _register(function, *args, **options):
    if here() is None:
        return _REGISTER(function, *args, **options)
    here().at_exit.append((function, args, options))
    return function


def _signal(number, handler):
    """As ``signal.signal``, which Python allows in its main thread alone; from outside no signal comes to a rank."""
    if here() is None:
        return _SIGNAL(number, handler)
    before = _getsignal(number)
    here().handlers[number] = handler
    return before


def _getsignal(number):
    known = {} if here() is None else here().handlers
    return known[number] if number in known else _GETSIGNAL(number)


def _raise_signal(number):
    """Call the rank's handler, or end the rank as the signal would."""
    if here() is None:
        return _RAISE(number)
    handler = _getsignal(number)
    if callable(handler):
        handler(int(number), sys._getframe(1))
    elif handler != signal.SIG_IGN and number not in (signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH):
        sys.exit(128 + number)
    return None


def _kill(number, sent):
    if here() is None or number < RANK_PIDS:
        return _KILL(number, sent)
    if number != RANK_PIDS + here().number:
        raise PermissionError(f"os.kill: expected the number of rank {here().number} itself: ranks send no signals")
    return _raise_signal(sent) if sent else None


def _getpid():
    name = sys._getframe(1).f_globals.get("__name__", "")
    if here() is None or not is_programs(name, sys.modules.get(name)):
        return _GETPID()
    return RANK_PIDS + here().number
