"""Ctrl-C, kept away from the one moment at which it would end the process.

To call Python, pybind11 looks up the name of the Python function that is running with PyObject_Str, which runs the
handlers of signals that have arrived. torch asks the device guard for its type in this way from functions of C++ that
may not throw; a handler that raises there, as Ctrl-C's does, is the end. So `guard` marks the moment, and the handler
that stands here then does nothing but ask for the same signal again a little later.
"""

import _signal  # signal.getsignal takes ten times as long, and is asked before every operation
import _thread
import signal
import threading
import time

inside = set()  # holds True while the guard is asked for its type
_LATER_S = 0.005
_usual = None


def keep_handler():
    """Put the handler before the one that is in use; whoever set another in between, as notebooks do, is followed."""
    if _signal.getsignal(signal.SIGINT) is not _handler:
        _install()


def _install():
    global _usual
    usual = _signal.getsignal(signal.SIGINT)
    if callable(usual) and threading.current_thread() is threading.main_thread():
        _usual = usual
        signal.signal(signal.SIGINT, _handler)


def _handler(number, frame):
    if inside:
        _thread.start_new_thread(_again, ())
    else:
        _usual(number, frame)


def _again():
    time.sleep(_LATER_S)
    _thread.interrupt_main()
