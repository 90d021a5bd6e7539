"""Ranks take turns, so they go on where the one before stopped: on its processor, whose caches hold what they share.

An operating system would rather wake a thread on a processor that is idle, as the one that hands on is still busy. So a
thread that waits is bound to the processor of the one that wakes it, and set free once it runs: it may then be moved,
and what it starts may run anywhere. Only Linux lets a program say so.
"""

import contextlib
import ctypes
import os

_here = getattr(ctypes.CDLL(None), "sched_getcpu", None) if hasattr(os, "sched_setaffinity") else None


def allowed():
    """Return the processors on which the calling thread may run, None where that cannot be said."""
    return None if _here is None else os.sched_getaffinity(0)


def bring(thread):
    """Let a thread that waits wake up on the calling one's processor; thread: its native number."""
    if _here is not None:
        _bind(thread, {_here()})


def free(processors):
    """Let the calling thread run on any of these processors, as `allowed` returned them."""
    if processors is not None:
        _bind(0, processors)


def _bind(thread, processors):
    with contextlib.suppress(OSError):  # some containers forbid it: it is only slower then
        os.sched_setaffinity(thread, processors)
