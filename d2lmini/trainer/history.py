"""What a run of the trainer recorded, as plain numbers, so that a checkpoint can hold it; `figures.plots` draws it."""

from dataclasses import dataclass, field


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

    def check(self):
        """Raise TypeError or ValueError unless it has the numbers of as many epochs in each list, and a provenance."""
        numbers = [*map(float, self.loss), *map(float, self.accuracy), *map(float, self.seconds)]
        if len(numbers) - len(self.accuracy) != 2 * len(self.loss) or not isinstance(self.provenance, str):
            raise ValueError(f"a history of {len(self.loss)} losses, {len(self.seconds)} times, {self.provenance!r}")

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
