"""What blocks a thread in Python: on a rank it lets the others run, and is told as a deadlock where nothing can come.

    locks, events, conditions, barriers, queues     Python's, whose locks are made here while ranks run
    Thread.join, fcntl.flock                        replaced
    multiprocessing's locks, events and pipes       replaced: on ranks that a program starts itself

The rank's own threads are waited for first, and keep its turn, since in a process nobody else could do what it waits
for. But a library that ranks share may have one lock for all of them, and a file another rank's.
"""

import fcntl
import queue
import sys
import threading
from _thread import allocate_lock
from multiprocessing import active_children, connection, synchronize
from time import monotonic  # what a program reads on a rank may be simulated

from simgpu.ranks import diagnosis
from simgpu.ranks.errors import DeadlockError
from simgpu.ranks.modules import is_imported
from simgpu.ranks.own_locks import OwnLock
from simgpu.ranks.sleeping import really_sleep
from simgpu.torch_glue.here import here

REAL_S = 5  # so long threads at work keep the turn, and nothing at all may happen before a deadlock is told
_SURE_S = 0.02  # a thread may seem to be at rest while it begins or ends a wait
_LONGEST_S, _SHORTEST_S = 5e-3, 5e-5
_IDLE = (*(module.__file__ for module in (threading, queue)), __file__)
_JOIN, _START, _FLOCK = threading.Thread.join, threading.Thread.start, fcntl.flock
_Waits = threading.local()


def until(ready, what, timeout=None):
    """Return whether ``ready()`` has come true, at once or within `timeout` real seconds, None for any time.

    Raises DeadlockError when all ranks wait, no thread of theirs is at work, and nothing has happened for `REAL_S`.
    """
    if ready():
        return True
    rank = here()
    began = since = monotonic()
    pause, moves, worked, rank.blocked = _SHORTEST_S, rank.world.scheduler.moves, began, what
    try:
        while not ready():
            rank.world.scheduler.check()
            now = monotonic()
            if timeout is not None and 0 <= timeout <= now - began:
                return False
            busy = _at_work(rank.world)
            worked = now if busy else worked
            if busy is None or now - worked > _SURE_S or now - began > REAL_S:
                rank.rest()
            if busy or moves != rank.world.scheduler.moves:
                moves, since = rank.world.scheduler.moves, now
            if now - since > REAL_S and timeout is None and _all_blocked(rank):
                raise DeadlockError(diagnosis.blocked(rank.world))
            really_sleep(pause)
            pause = min(2 * pause, _LONGEST_S)
        rank.world.scheduler.moves += 1
        return True
    finally:
        rank.blocked = None


def _at_work(world):
    """Return whether a thread or process of the program's is at work, None where there are none but the ranks'."""
    if not world.earlier_children.issuperset(active_children()):
        return True
    frames = sys._current_frames()
    world.strangers.intersection_update(frames)  # the number of one that has ended may come again
    known = world.strangers.union(rank.thread for rank in _all_ranks(world))
    others = [frame for ident, frame in frames.items() if ident not in known]
    return any(frame.f_code.co_filename not in _IDLE for frame in others) if others else None


def _all_ranks(world):
    while world is not None:
        yield from world.ranks
        world = world.parent


def _all_blocked(rank):
    waiting = {work.rank for work in rank.world.scheduler.waiting()}
    return all(other.ended or other.blocked or other.number in waiting for other in rank.world.ranks)


class Lock:
    """As ``threading.Lock``."""

    def __init__(self):
        self._lock = allocate_lock()
        self.release, self.locked, self._at_fork_reinit = (
            self._lock.release,
            self._lock.locked,
            self._lock._at_fork_reinit,
        )

    def acquire(self, blocking=True, timeout=-1):
        """Take the lock; return whether it was free, or became so in time."""
        if not blocking or here() is None or getattr(_Waits, "plainly", False):
            return self._lock.acquire(blocking, timeout)
        return until(self._take, "a lock or an event", None if timeout == -1 else timeout)

    def _take(self):
        return self._lock.acquire(False)

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def __repr__(self):
        return repr(self._lock)


def entries():
    """Yield (owner, name, what takes its place)."""
    yield threading, "Lock", _made(Lock)
    yield threading, "_allocate_lock", Lock
    yield threading, "RLock", _made(threading._PyRLock)  # Python's own in Python, above a `Lock`
    yield threading.Thread, "start", _start
    yield threading.Thread, "join", _join
    yield queue, "SimpleQueue", _simple_queue(queue.SimpleQueue)
    yield fcntl, "flock", _flock
    yield synchronize.SemLock, "_make_methods", _semaphore(synchronize.SemLock._make_methods)
    yield synchronize.SemLock, "__enter__", lambda semaphore: semaphore.acquire()
    for name in ("recv", "recv_bytes"):
        yield connection.Connection, name, _receiving(getattr(connection.Connection, name))


def _made(kind):
    return lambda: OwnLock(kind) if is_imported() else kind()


def _start(thread):
    _Waits.plainly = True  # it is there at once
    try:
        return _START(thread)
    finally:
        _Waits.plainly = False


def _join(thread, timeout=None):
    if here() is None or thread.ident is None or thread is threading.current_thread():
        return _JOIN(thread, timeout)
    until(lambda: not thread.is_alive(), "the end of a thread", None if timeout is None else max(timeout, 0))
    return None


def _simple_queue(own):
    class SimpleQueue(own):
        def get(self, block=True, timeout=None):
            """Return an item, once there is one."""
            if block and here() is not None and not until(lambda: not self.empty(), "an item of a queue", timeout):
                raise queue.Empty
            return super().get(block, timeout)

    return SimpleQueue


def _flock(file, operation):
    if here() is None or operation & fcntl.LOCK_NB:
        return _FLOCK(file, operation)

    def take():
        try:
            _FLOCK(file, operation | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    until(take, "the lock of a file")
    return None


def _semaphore(own):
    def make_methods(semaphore):
        own(semaphore)
        acquire = semaphore.acquire

        def acquiring(block=True, timeout=None):
            if not block or here() is None:
                return acquire(block, timeout)
            here().start_children()
            return until(lambda: acquire(False), "a lock between processes", timeout)

        semaphore.acquire = acquiring

    return make_methods


def _receiving(own):
    def receive(pipe, *args):
        if here() is not None:
            here().start_children()
            until(lambda: pipe.poll(0), "something from a pipe")
        return own(pipe, *args)

    return receive
