"""What a call to a collective gives back: a Work to wait for, and its Future.

Two waits are meant by one ``wait()``, as with NCCL. The rank's thread waits until the other ranks have called, so that
the values are there; that takes no simulated time. And the device's current stream waits for the communication's end,
which takes time there; the host goes on at once, unless the tensors are the host's own.
"""

from datetime import timedelta

import torch
import torch.distributed as dist

from simgpu.ranks.errors import TimedOutError, in_words


def seconds_of(timeout):
    """Return a timeout, a timedelta or a number, in seconds; None for none and for a negative one, torch's "none"."""
    seconds = timeout.total_seconds() if isinstance(timeout, timedelta) else timeout
    return None if seconds is None or seconds < 0 else seconds


class Work(dist.Work):
    """One rank's part of one collective or message. call: what it asks for; rank: its `ranks.Rank`."""

    __module__ = "torch.distributed.distributed_c10d"  # as programs print it

    def __init__(self, call, rank):
        super().__init__()
        self.call, self.owner, self.rank = call, rank, call.rank
        self.finished, self._future = False, None
        rank.world.works.add(self)
        self.end = 0  # the simulated moment, in picoseconds, at which it is over
        self.deadline, self.expired = None, None  # as of `scheduler.Wait`

    def finish(self, end):
        """Note that the values are there, and when on the simulated clock; wake the rank if it waits."""
        self.finished, self.end = True, end
        self.owner.world.scheduler.done(self.rank, self)

    def wait(self, timeout=None):
        """Return True once the values are there. Raises DeadlockError when no rank can ever complete it.

        timeout: A timedelta; after so much simulated time TimedOutError is raised. By default that of a gloo group.
        """
        self._arrive(seconds_of(timeout) or None)
        self.owner.join(self.end, self.call)
        return True

    def synchronize(self):
        """As `wait`."""
        self.wait()

    def is_completed(self):
        """Return whether the values are there; the other ranks may run meanwhile."""
        if not self.finished:
            self.owner.rest()
        return self.finished

    def is_success(self):
        """Return whether the values are there: a collective that fails raises."""
        return self.finished

    def exception(self):
        """Return None: a collective that fails raises."""
        return None

    def result(self):
        """Return the tensors that were filled."""
        return self.call.results

    def source_rank(self):
        """Return the rank that a received message came from."""
        return self.call.source

    _source_rank = source_rank

    def get_future(self):
        """Return a Future that is done; who asks for it waits for the values as in `wait`."""
        if self._future is None:
            self._arrive()
            self._future = Future(self.owner, self.end, self.call, self.call.results)
        return self._future

    def lacks(self):
        """Return in words what it waits for."""
        mismatch, missing = self.call.rendezvous.mismatch(self), self.call.rendezvous.missing(self)
        if mismatch:
            return f"which failed: {mismatch}"
        crossed = self.call.rendezvous.crossed(self)
        if crossed:
            return (
                f"which waits behind a {crossed.call.name} of rank {crossed.rank}: NCCL runs a pair's messages in the "
                "order of the calls; let one rank send first, or use batch_isend_irecv"
            )
        return f"not called by {in_words(missing)}" if missing else "which nobody answers"

    def forget(self):
        """Let go of the tensors, once the ranks have ended."""
        self.call.sent = self.call.received = self.call.results = []
        self.call.details = type(self.call).details  # which may hold DDP's reducer

    def expire(self, told):
        """Note that its time is over; return all works of the call, none of which can be completed any more."""
        works, missing = self.call.rendezvous.give_up(self), in_words(self.call.rendezvous.missing(self))
        for work in works:
            work.expired = f"{work.call.late(work is self, missing)}: {told}"
            work.deadline = self.deadline
        return works

    def _arrive(self, seconds=None):
        if not self.finished and not self.expired:
            self.call.seconds = self.call.seconds if seconds is None else seconds
            self.deadline = self.owner.deadline(self.call.seconds)
            self.owner.wait(self)
        if self.expired:
            raise TimedOutError(self.expired)


class Future(torch.futures.Future):
    """The Future of a Work. Waiting for it, or the end of the backward pass, makes the current stream wait."""

    __module__ = "torch.futures"

    def __init__(self, owner, end, call, result):
        super().__init__()
        self._owner, self._end, self._call = owner, end, call
        owner.leave_for_backward(end, call, result)
        self.set_result(result)

    def wait(self):
        """Return the result, for which the current stream waits."""
        self._owner.join(self._end, self._call)
        return super().wait()

    def then(self, callback):
        """Return a Future of ``callback(self)``, whose operations run on a stream beside, as with CUDA."""
        with self._owner.beside(self._end, self._call) as stream:
            result = callback(self)
            if isinstance(result, torch.futures.Future):
                return result
            end = self._owner.reached(stream, self._end)
        return Future(self._owner, end, self._call, result)


class Together(dist.Work):
    """Several Works as one, for calls inside ``_coalescing_manager``."""

    def __init__(self, works):
        super().__init__()
        self._works = works

    def wait(self, timeout=None):
        """Wait for all of them."""
        for work in self._works:
            work.wait()
        return True

    def is_completed(self):
        """Return whether all of them are."""
        return all(work.is_completed() for work in self._works)
