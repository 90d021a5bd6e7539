"""What a run of the trainer recorded, and how far it has come.

Both are plain numbers, so that a checkpoint can hold them. `d2lmini.plots` draws a history.
"""

import math
from dataclasses import dataclass, field

import torch


class DivergedError(ArithmeticError):
    """A loss that is not a finite number, named by epoch, batch, device and rank; or a parameter that is none."""


@dataclass
class History:
    """What `Trainer.fit` recorded, one entry an epoch; printed, it is a table, and `plots.history` draws it.

    `loss`: the mean over the training examples; `accuracy`: the fraction of test examples right, empty when there was
    no test set; `seconds`: of training only, after every device had finished, simulated on simulated devices.
    `provenance`: where the seconds come from, in the words of `timing.provenance`.
    """

    loss: list = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    seconds: list = field(default_factory=list)
    provenance: str = ""

    def header(self):
        """Return the heads of the table's columns."""
        kind = self.provenance.split(" ")[0]
        return f"epoch  training loss  test accuracy  {f'{kind} seconds'.strip():>17}"

    def row(self, epoch):
        """Return the table's row of an epoch, counted from 1."""
        i = epoch - 1
        accuracy = f"{self.accuracy[i]:.4f}" if i < len(self.accuracy) else "–"
        return f"{epoch:5d}  {self.loss[i]:13.4f}  {accuracy:>13}  {self.seconds[i]:17.4g}"

    def __str__(self):
        rows = [self.row(epoch) for epoch in range(1, len(self.loss) + 1)]
        return "\n".join([self.header(), *rows, f"({self.provenance})"])


@dataclass
class Progress:
    """How far `Trainer.fit` has come: whole epochs, and what the one under way has done so far.

    `batches`, `examples`, `seconds`: of this epoch; `loss`: the sum of its losses over the examples.
    """

    epochs: int = 0
    batches: int = 0
    examples: int = 0
    loss: float = 0.0
    seconds: float = 0.0


class LossLog:
    """Collects losses where they are, without waiting for a device, and reads them many at a time.

    A loss that is not finite is therefore found up to `EVERY` batches after it occurred, but named exactly.
    """

    EVERY = 256  # batches between two readings: the devices are waited for so seldom, and few numbers are kept

    def __init__(self, progress, sums, devices):
        """Add to `progress`; `sums` says whether a loss is the sum over its shard, or the mean."""
        self.progress, self.sums, self.devices = progress, sums, devices
        self._waiting = []  # one entry a batch: (size, loss) of each shard, in order of rank

    def add(self, shards):
        """Note a batch, given as the pairs (size, loss) of its shards, each loss a tensor on its own device."""
        self._waiting.append(shards)
        self.progress.batches += 1
        self.progress.examples += sum(size for size, _ in shards)
        if len(self._waiting) == self.EVERY:
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

    def _fetch(self, waiting):
        """Return an iterator of floats for each rank, with one transfer a rank."""
        columns = [[] for _ in self.devices]
        for shards in waiting:
            for rank, (_, loss) in enumerate(shards):
                columns[rank].append(loss)
        return [iter(torch.stack(column).tolist() if column else []) for column in columns]

    def _describe(self, value, batch, rank):
        return (f"the loss is {value} in epoch {self.progress.epochs + 1}, batch {batch}, on {self.devices[rank]} "
                f"(rank {rank}): lower the learning rate, clip the gradients, or look at that batch")  # fmt: skip
