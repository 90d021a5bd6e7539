"""Losses, read from the devices many at a time, so that training never waits for one."""

import math
import time

import torch

from d2lmini.trainer.history import DivergedError


class LossLog:
    """Collects losses where they are, without waiting for a device, and reads them many at a time.

    A loss that is not finite is therefore found up to `EVERY` batches after it occurred, but named exactly.
    """

    EVERY = 256  # batches between two readings: the devices are waited for so seldom, and few numbers are kept
    SECONDS = 5.0  # between two readings of processes: where one has seen a NaN, none shall go on for long

    def __init__(self, progress, sums, devices, gather=lambda rows: rows, processes=False):
        """Add to `progress`; `sums` says whether a loss is the sum over its shard, or the mean.

        gather: where the ranks are processes, what makes of this one's values, a list by rank, those of all.
        """
        self.progress, self.sums, self.devices, self.gather = progress, sums, devices, gather
        self.processes, self._every, self._read_at = processes, 1 if processes else self.EVERY, time.monotonic()
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
        slowest = max(1e-6, *self.gather([time.monotonic() - self._read_at] * len(self.devices)))
        self._read_at = time.monotonic()
        return max(1, min(self.EVERY, int(batches * self.SECONDS / slowest)))

    def _fetch(self, waiting):
        """Return an iterator of floats for each rank, with one transfer a rank."""
        columns = [[] for _ in self.devices]
        for shards in waiting:
            for rank, (_, loss) in enumerate(shards):
                columns[rank].extend([] if loss is None else [loss])
        return list(map(iter, self.gather([torch.stack(column).tolist() if column else [] for column in columns])))

    def _describe(self, value, batch, rank):
        return (f"the loss is {value} in epoch {self.progress.epochs + 1}, batch {batch}, on {self.devices[rank]} "
                f"(rank {rank}): lower the learning rate, clip the gradients, or look at that batch")  # fmt: skip
