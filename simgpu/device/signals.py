"""Ctrl-C, kept away from the moments at which it would end the process or keep tensors for ever.

To call Python, pybind11 looks up the name of the Python function that is running with PyObject_Str, which runs the
handlers of signals that have arrived. torch asks the device guard for its type in this way from functions of C++ that
may not throw; a handler that raises there, as Ctrl-C's does, is the end. So `guard` marks the moment, and the handler
that stands here then does nothing but ask for the same signal again a little later.
"""

import _signal
import _thread
import signal
import threading
import time
from functools import partial
from itertools import repeat

SIGINT = int(signal.SIGINT)
in_use = _signal.getsignal  # that of `signal` takes ten times as long, and is asked before every operation
inside = {}  # holds something while the guard is asked for its type
_LATER_S = 0.005
_usual = None


def undisturbed(answer):
    """Return a property with which torch finds the function `answer`, and no handler raises while it looks.

    Where C++ code may throw an error that strikes there is no end, but pybind11 then keeps the frame of the function
    that is running, with all its tensors, for ever.
    """

    def answering(*args):
        inside.clear()
        return answer(*args)

    # As in `guard` the look-up is a string of C functions, between which no handler runs.
    return property(partial(next, marked(answering)))


def marked(answer):
    """Return an iterator of C functions only: each step marks the moment and gives `answer`."""
    return map(inside.setdefault, repeat(answer), repeat(answer))


def install():
    """Put our handler before the one that is in use; whoever set another in between, as notebooks do, is followed."""
    global _usual
    usual = in_use(SIGINT)
    if callable(usual) and usual is not handler and threading.current_thread() is threading.main_thread():
        _usual = usual
        signal.signal(SIGINT, handler)


def restore(usual):
    """Put back the handler `usual` that was in use, None for the one that `install` found, unless another is there."""
    usual = _usual if usual is None else usual
    if in_use(SIGINT) is handler is not usual and threading.current_thread() is threading.main_thread():
        signal.signal(SIGINT, usual)


def handler(number, frame):
    """Pass the signal on, or ask for it again if this is a moment at which it may not be raised."""
    if inside:
        _thread.start_new_thread(_again, ())
    else:
        _usual(number, frame)


def _again():
    time.sleep(_LATER_S)
    _thread.interrupt_main()
