"""A lock that an installed library makes while it is imported, which all ranks share: each has its own behind it."""

from threading import get_ident
from weakref import WeakKeyDictionary

from simgpu.accounting.allocator import Running


class OwnLock:
    """As the lock that ``make()`` returns, one for each rank, and one outside of ranks."""

    def __init__(self, make):
        self._make, self._outside, self._ranks, self._held = make, make(), WeakKeyDictionary(), {}

    def _lock(self):
        """Return the lock that the calling thread holds, else that of the rank that runs."""
        if get_ident() in self._held:
            return self._held[get_ident()]
        if Running.process is None:
            return self._outside
        if Running.process not in self._ranks:
            self._ranks[Running.process] = self._make()
        return self._ranks[Running.process]

    def acquire(self, *args, **options):
        """Take the lock; return whether it is taken."""
        lock = self._lock()
        if lock.acquire(*args, **options):
            self._held[get_ident()] = lock
            return True
        return False

    def release(self):
        """Give the lock back."""
        lock = self._lock()
        lock.release()
        if not getattr(lock, "_is_owned", bool)():
            self._held.pop(get_ident(), None)

    def locked(self):
        """Return whether anybody has it."""
        return self._lock().locked()

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *error):
        self.release()

    def __getattr__(self, name):  # what a Condition asks of it
        return getattr(self._lock(), name)
