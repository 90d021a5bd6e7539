"""The store that all ranks share: who waits for a key lets the others run until one of them has set it.

Who only looks lets them run too, since a program may look again and again until another rank has set something.
"""

import torch.distributed as dist

from simgpu.ranks.errors import StoreTimedOutError
from simgpu.ranks.scheduler import Wait
from simgpu.ranks.work import seconds_of
from simgpu.torch_glue.here import here


class Store(dist.Store):
    """What torch's stores do, but for their own timeout: a key that no rank will ever set is a deadlock.

    Called from C++ too.
    """

    def __init__(self):
        super().__init__()
        self._kept, self._waiting = dist.HashStore(), []

    def set(self, key, value):
        """Set a key."""
        self._kept.set(key, value)
        self._wake()

    def get(self, key):
        """Return what a key is set to, once it is."""
        self.wait([key])
        return self._kept.get(key)

    def wait(self, keys, timeout=None):
        """Return once all keys are set. Raises DeadlockError when they never will be, of its kind after a timeout."""
        rank = here()
        if self.check(keys) or rank is None:  # a thread beside the ranks waits as torch's do
            return self._kept.wait(keys)
        limit = seconds_of(timeout)
        wait = Wait(rank, f"store.wait for {', '.join(keys)}", "which no rank sets", limit)
        self._waiting.append((keys, wait))
        rank.wait(wait)
        if wait.expired:
            self._waiting.remove((keys, wait))
            raise StoreTimedOutError(
                f"wait timeout after {limit * 1000:.0f}ms, keys: {', '.join(keys)}: {wait.expired}"
            )

    def check(self, keys):
        """Return whether all keys are set."""
        _rest()
        return self._kept.check(keys)

    def add(self, key, amount):
        """Add to a number, 0 at first; return the sum."""
        _rest()
        total = self._kept.add(key, amount)
        self._wake()
        return total

    def append(self, key, value):
        """Append to what a key is set to."""
        self._kept.append(key, value)
        self._wake()

    def compare_set(self, key, expected, desired):
        """Set a key that has the expected value; return its value."""
        _rest()
        found = self._kept.compare_set(key, expected, desired)
        self._wake()
        return found

    def multi_set(self, keys, values):
        """Set several keys."""
        self._kept.multi_set(keys, values)
        self._wake()

    def multi_get(self, keys):
        """Return what keys are set to, once they all are."""
        self.wait(keys)
        return self._kept.multi_get(keys)

    def has_extended_api(self):
        """Return True: there are `append`, `multi_get` and `multi_set`."""
        return True

    def delete_key(self, key):
        """Delete a key; return whether it was set."""
        return self._kept.delete_key(key)

    def num_keys(self):
        """Return the number of keys."""
        _rest()
        return self._kept.num_keys()

    deleteKey, getNumKeys = delete_key, num_keys  # by which C++ calls them

    def _wake(self):
        for keys, wait in [waiting for waiting in self._waiting if self._kept.check(waiting[0])]:
            self._waiting.remove((keys, wait))
            wait.end()


def _rest():
    if here() is not None:
        here().rest()
