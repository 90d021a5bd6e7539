"""Ctrl+C: end the threads of all ranks, those that wait and the one that runs, wherever its Python code is."""

import ctypes
import sys
import threading
from itertools import compress
from time import monotonic

from simgpu.ranks.errors import Stopped
from simgpu.ranks.sleeping import really_sleep

_TELL_S = 0.01  # between two looks at which rank runs
_END_S = 10  # a thread that waits in C, as for a lock of a file, is left behind


def end(threads, scheduler, leave):
    """Have each rank raise Stopped, and return when all threads have ended, or after `_END_S`.

    Args:
        threads: A rank's thread each, in the order of ranks.
        scheduler: Theirs.
        leave: What a rank does last, called with its number for one whose thread has ended: Stopped may have struck it
            before it could hand on. Doing it again changes nothing.
    """
    scheduler.stop()
    told, hooks = set(), (sys.unraisablehook, threading.excepthook)

    def tell(running):
        if running not in told:
            told.add(running)
            ident = ctypes.c_ulong(threads[running].ident)
            ctypes.pythonapi.PyThreadState_SetAsyncExc(ident, ctypes.py_object(Stopped))

    def in_callback(event):  # as of a weak reference, which Python lets raise nothing
        told.discard(scheduler.running) if event.exc_type is Stopped else hooks[0](event)

    def at_its_end(event):  # of a thread
        if event.exc_type is not Stopped:
            hooks[1](event)

    sys.unraisablehook, threading.excepthook = in_callback, at_its_end
    try:
        until = monotonic() + _END_S
        while monotonic() < until:
            scheduler.tell(tell)
            alive = sys._current_frames()  # Python 3.11 takes the thread whose `join` was interrupted for ended
            ended = [thread.ident not in alive for thread in threads]
            if all(ended):
                break
            for rank in compress(range(len(threads)), ended):
                leave(rank)
            really_sleep(_TELL_S)
    finally:
        sys.unraisablehook, threading.excepthook = hooks
