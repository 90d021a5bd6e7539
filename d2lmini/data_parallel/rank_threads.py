"""Replicas of one process that must exchange tensors in the middle of their forward pass: threads that take turns.

    rank 0  ▐layers▌give           take▐layers▌give           take▐layers▌
    rank 1          ▐layers▌give               ▐layers▌               take…
    rank 2                  ▐layers▌give → all have given, the turn is rank 0's again

Only one thread runs at a time, in order of rank, so that a run is the same every time: the order of random numbers, of
sums and of what is printed. A GPU loses nothing by it, as it works behind the program's back.
"""

import threading
from contextlib import suppress

_local = threading.local()


class Lockstep:
    """The state that `world_size` threads share: whose turn it is, what each has given, and what went wrong."""

    def __init__(self, world_size):
        self.world_size, self.turn, self.failed = world_size, 0, None
        self.given, self.complete, self.returned = [None] * world_size, None, 0
        self.changed = threading.Condition()

    def wait(self, rank):
        """Wait for the turn of `rank`; raises BrokenBarrierError when another rank has failed."""
        with self.changed:
            self.changed.wait_for(lambda: self.turn == rank or self.failed is not None)
        if self.failed is not None:
            raise threading.BrokenBarrierError

    def hand_on(self, rank, error=None, returned=False):
        """End the turn of `rank`, or with an error all turns. returned: its function has, it takes no turn again."""
        self.returned += returned
        if error is None and self.returned != (rank + 1 if returned else 0):  # in one round all do the same
            back, waits = (rank, 0) if returned else (0, rank)  # rank 0, the first to act, did otherwise
            error = RuntimeError(
                f"rank {back} has returned, and rank {waits} waits in exchange: all ranks must call it equally often"
            )
        with self.changed:
            self.failed = error if self.failed is None else self.failed
            self.turn = (rank + 1) % self.world_size
            self.changed.notify_all()

    def exchange(self, rank, value):
        """Take the value of `rank`, let the others have their turns, and return the list of what all gave."""
        self.given[rank] = value
        if rank == self.world_size - 1:
            self.complete = list(self.given)  # stays until the last rank gives again, so all can take it
        self.hand_on(rank)
        self.wait(rank)
        return self.complete


def together(functions):
    """Call the functions, each in a thread of its own, and return their results in order.

    They take turns: a function runs until it calls `exchange` or returns.

    Args:
        functions: One without arguments for each rank.

    Raises:
        RuntimeError: One returned while another waits in `exchange`: all must call it equally often.
        Exception: What the first function that failed raised.
    """
    lockstep, results = Lockstep(len(functions)), [None] * len(functions)
    threads = [
        threading.Thread(target=_run, args=(lockstep, rank, function, results), daemon=True)
        for rank, function in enumerate(functions)
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:  # an interrupt: those that wait for their turn must not wait for ever
        lockstep.hand_on(0, error)
        raise
    if lockstep.failed is not None:
        raise lockstep.failed
    return results


def exchange(value):
    """Give `value` and return the list of what all ranks gave; alone, outside of `together`, that is ``[value]``."""
    lockstep, rank = getattr(_local, "place", (None, 0))
    return [value] if lockstep is None else lockstep.exchange(rank, value)


def _run(lockstep, rank, function, results):
    _local.place = lockstep, rank
    with suppress(threading.BrokenBarrierError):
        lockstep.wait(rank)
        try:
            results[rank] = function()
        except threading.BrokenBarrierError:
            raise
        except BaseException as error:  # handed to the caller of `together`
            lockstep.hand_on(rank, error)
        else:
            lockstep.hand_on(rank, returned=True)
