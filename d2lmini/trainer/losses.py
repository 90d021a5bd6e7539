"""Losses, read from the devices many at a time, so that training never waits for one."""

import math
import time

import torch

from d2lmini.trainer.errors import DivergedError


class LossLog:
    """Collects losses where they are, without waiting for a device, and reads them many at a time.

    A loss that is not finite is therefore found up to `EVERY` batches after it occurred, but named exactly.
    """

    EVERY = 256  # batches between two readings: the devices are waited for so seldom, and few numbers are kept
    SECONDS = 5.0  # between two readings of processes: where one has seen a NaN, none shall go on for long

    def __init__(self, progress, sums, comm, clock=time.monotonic):
        """Add to `progress`; sums: whether a loss is the sum over its shard, or the mean."""
        self.progress, self.sums, self.comm, self._clock = progress, sums, comm, clock
        self.processes = len(comm.here) < comm.world_size
        self._every, self._read_at = 1 if self.processes else self.EVERY, clock()
        self._waiting = []  # one entry a batch: (size, loss) of each shard, in order of rank

    def add(self, shards):
        """Note a batch, given as the pairs (size, loss) of its shards, each loss a tensor on its own device.

        The loss of a shard that another process has is None.
        """
        self._waiting.append(shards)
        self.progress.batches += 1
        for size, _ in shards:
            self.progress.examples += size
        if len(self._waiting) == self._every:
            self.read()

    def read(self):
        """Fetch the losses and add them up in order; raises DivergedError for the first that is not finite."""
        waiting, self._waiting = self._waiting, []
        first = self.progress.batches - len(waiting) + 1
        values = self._fetch(waiting)
        for batch, shards in enumerate(waiting, start=first):
            for rank, (size, _) in enumerate(shards):
                value = next(values[rank])
                if not math.isfinite(value):
                    raise DivergedError(self._describe(value, batch, rank))
                self.progress.loss += value if self.sums else value * size
        if self.processes and waiting:
            self._every = self._until_next(len(waiting))

    def _until_next(self, batches):
        """Return after how many batches to read again, given how many were read now: all ranks find the same."""
        slowest = max(1e-6, *self.comm.gather([self._clock() - self._read_at]))
        self._read_at = self._clock()
        return max(1, min(self.EVERY, int(batches * self.SECONDS / slowest)))

    def _fetch(self, waiting):
        """Return an iterator of floats for each rank, with one transfer a rank."""
        columns = [[shards[rank][1] for shards in waiting if rank < len(shards)] for rank in self.comm.here]
        columns = [[loss for loss in column if loss is not None] for column in columns]
        return list(map(iter, self.comm.gather([torch.stack(c).tolist() if c else [] for c in columns])))

    def _describe(self, value, batch, rank):
        return (f"the loss is {value} in epoch {self.progress.epochs + 1}, batch {batch}, on {self.comm.places[rank]} "
                f"(rank {rank}): lower the learning rate, clip the gradients, or look at that batch")  # fmt: skip
