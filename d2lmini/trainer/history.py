"""What a run of the trainer recorded; its losses are read many at a time, so that training never waits for one.

A `History` is of plain numbers, so that a checkpoint can hold it; `figures.plots` draws it.
"""

import cmath
import math
import time
from dataclasses import dataclass, field
from itertools import zip_longest

import torch

from d2lmini.distributed.errors import DivergedError


@dataclass
class History:
    """What `Trainer.fit` recorded, one entry an epoch; printed, it is a table, and `plots.history` draws it.

    Attributes:
        loss: The mean over the training examples.
        accuracy: The fraction of test examples classified correctly; empty when there was no test set.
        seconds: Of training only, after every device had finished; simulated on simulated devices.
        provenance: Where the seconds come from, in the words of `timing.provenance`.
    """

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    provenance: str = ""

    def __str__(self):
        kind = self.provenance.split(" ")[0]
        lines = [f"epoch  training loss  test accuracy  {f'{kind} seconds'.strip():>17}"]
        rows = zip_longest(self.loss, self.accuracy, self.seconds)
        for epoch, (loss, accuracy, seconds) in enumerate(rows, start=1):
            right = "–" if accuracy is None else f"{accuracy:.4f}"
            lines.append(f"{epoch:5d}  {loss:13.4f}  {right:>13}  {seconds:17.4g}")
        return "\n".join([*lines, f"({self.provenance})"])


class LossLog:
    """Collects the losses of an epoch where they are, without waiting for a device, and reads them many at a time.

    A loss that is not finite is therefore found up to `EVERY` batches after it occurred, but named exactly.
    `batches`, `examples`: how many so far; `total`: the sum of the losses over the examples that were read.
    """

    EVERY = 256  # batches between two readings: the devices are waited for so seldom, and few numbers are kept
    SECONDS = 5.0  # between two readings of processes: where one has seen a NaN, none shall go on for long

    def __init__(self, epoch, sums, comm, clock=time.perf_counter):
        """Begin an epoch.

        Args:
            epoch: Its number.
            sums: Whether a loss is the sum over its shard, or the mean.
            comm: The trainer's `Comm`.
            clock: Tells the seconds; where devices are simulated theirs, so that equal runs read equally often.
        """
        self.epoch, self.sums, self.comm, self._clock = epoch, sums, comm, clock
        self.batches, self.examples, self.total = 0, 0, 0.0
        self._every, self._read_at = self.EVERY if comm.alone else 1, clock()
        self._waiting = []  # one entry a batch: (size, loss) of each shard, in order of rank

    def add(self, shards):
        """Note a batch, given as the pairs (size, loss) of its shards, each loss a tensor on its own device.

        The loss of a shard that another process has is None.
        """
        self._waiting.append(shards)
        self.batches += 1
        self.examples += sum(size for size, _ in shards)
        if len(self._waiting) == self._every:
            self.read()

    def read(self):
        """Fetch the losses and add them up in order; raises DivergedError for the first that is not finite."""
        waiting, self._waiting = self._waiting, []
        values = self._fetch(waiting)
        for batch, shards in enumerate(waiting, start=self.batches - len(waiting) + 1):
            for rank, (size, _) in enumerate(shards):
                value = next(values[rank])
                if not math.isfinite(value):
                    raise DivergedError(
                        f"the loss is {value} in epoch {self.epoch}, batch {batch}, on "
                        f"{self.comm.places[rank]} (rank {rank}): lower the learning rate, clip the "
                        "gradients, or look at that batch"
                    )
                self.total += value if self.sums else value * size
        if waiting and not self.comm.alone:
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


@torch.no_grad()
def finite(parameters):
    """Return whether all parameters, at least one, are finite numbers; this waits for their device."""
    parameters = list(parameters)
    # A finite sum has finite terms, and takes a sixth of the time; one that is not may just have grown too large.
    if cmath.isfinite(torch.stack([p.sum() for p in parameters]).sum().item()):
        return True
    return bool(torch.stack([p.isfinite().all() for p in parameters]).all())
