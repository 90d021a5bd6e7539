"""Memory that the ranks of one machine share, and how they wait for one another in it.

    one line of 64 bytes a rank:   entered │ written │ key │ key │ …      only its rank writes it, the others read it

The counters only grow. A rank first writes data, then its counter; who sees the counter sees the data, because x86
processors keep the order of stores and that of loads. ARM's do not, and Python has no fence: there the ranks meet in a
barrier of gloo's instead, which is slower and orders everything (`ORDERED`).

On Linux the memory is a file without a name (memfd), so nothing stays behind however the ranks end. Elsewhere it is a
temporary file whose name is removed once all ranks have opened it.
"""

import fcntl
import mmap
import os
import platform
import tempfile
import time
import weakref
from contextlib import suppress
from datetime import timedelta
from itertools import count

import torch.distributed as dist

from d2lmini.distributed.agreement import default_store

LINE = 64  # bytes of a cache line: two ranks never write the same one
ENTERED, WRITTEN, KEY = range(3)  # the places in a line; the calls' keys take two
ORDERED = platform.machine() in ("x86_64", "AMD64", "i686")
YIELDS = 100  # how often a waiting rank lets others run before it sleeps between looks; Linux may grant it no switch
NAP_S = 2e-5  # how long it sleeps; the system adds some 50 µs
LOOK_S = 0.05  # how often a rank that waits long looks whether those it waits for are alive
_numbers = count()
_yield = getattr(os, "sched_yield", lambda: time.sleep(0))


class Segment:
    """`nbytes` of shared memory as `data`, after one line a rank; making it is a collective call.

    Every wait has a limit of `timeout` seconds, and ends at once when a rank waited for has died.
    Raises TimeoutError where a rank does not come.
    """

    def __init__(self, nbytes, timeout):
        self.rank, self.world_size, self.timeout = dist.get_rank(), dist.get_world_size(), timeout
        head = -(-LINE * self.world_size // mmap.PAGESIZE) * mmap.PAGESIZE
        self.file = self._open(head + nbytes)
        weakref.finalize(self, os.close, self.file)
        flags = mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0)
        memory = memoryview(mmap.mmap(self.file, head + nbytes, flags=flags))
        self.lines, self.data = memory[: LINE * self.world_size].cast("q"), memory[head:]

    def _open(self, nbytes):
        """Return the descriptor of the file that rank 0 makes and the others open."""
        store, key = default_store(), f"d2lmini/segment{next(_numbers)}"
        limit = timedelta(seconds=self.timeout)
        if self.rank:
            store.wait([key], limit)
            file = os.open(store.get(key).decode(), os.O_RDWR)
        elif hasattr(os, "memfd_create"):
            file = os.memfd_create("d2lmini")
            path = f"/proc/{os.getpid()}/fd/{file}"
        else:
            file, path = tempfile.mkstemp(prefix="d2lmini-")
        if not self.rank:
            os.ftruncate(file, nbytes)
            store.set(key, path)
        fcntl.lockf(file, fcntl.LOCK_EX, 1, self.rank)  # held until this process ends, whatever ends it
        dist.monitored_barrier(timeout=limit)  # all have opened and locked it
        if not self.rank and not path.startswith("/proc"):
            os.unlink(path)
        return file

    def signal(self, column, value):
        """Tell the other ranks how far this one is, or which call it is in."""
        self.lines[self.rank * LINE // 8 + column] = value

    def read(self, rank, column):
        """Return what a rank told last."""
        return self.lines[rank * LINE // 8 + column]

    def wait(self, column, value):
        """Wait until every rank's counter has reached `value`. Raises TimeoutError or ConnectionError naming a rank."""
        if not ORDERED:
            dist.monitored_barrier(timeout=timedelta(seconds=self.timeout))
            return
        lines = self.lines
        for place in range(column, len(lines), LINE // 8):
            looks = 0
            while lines[place] < value:
                looks += 1
                if looks < YIELDS:
                    _yield()
                else:
                    self._wait_long(place // (LINE // 8), place, value)

    def _wait_long(self, rank, place, value):
        """Wait for a counter that may take long, or never come."""
        began = time.monotonic()
        look = began + LOOK_S
        while self.lines[place] < value:
            time.sleep(NAP_S)
            now = time.monotonic()
            if now < look:
                continue
            look = now + LOOK_S
            if self.gone(rank) and self.lines[place] < value:
                raise ConnectionError(f"rank {self.rank} lost rank {rank}, which has ended or let the memory go")
            if now > began + self.timeout:
                raise TimeoutError(f"rank {self.rank} waited {self.timeout:g} s for rank {rank} in shared memory")

    def gone(self, rank):
        """Return whether a rank has ended or let the memory go: the system has then dropped its lock."""
        if rank == self.rank:
            return False
        try:
            fcntl.lockf(self.file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, rank)
        except OSError:
            return False
        with suppress(OSError):
            fcntl.lockf(self.file, fcntl.LOCK_UN, 1, rank)
        return True
