"""Which simulated rank the calling thread is."""

import threading

_here = threading.local()


def here():
    """Return the `Rank` of the calling thread, None outside of one."""
    return getattr(_here, "rank", None)


def enter(rank):
    """Make the calling thread that of `rank`."""
    _here.rank = rank
