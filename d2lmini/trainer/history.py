"""What a run of the trainer recorded, and how far it has come.

Both are plain numbers, so that a checkpoint can hold them. `figures.plots` draws a history, and so does not need torch.
"""

import operator
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

    def check(self, epochs):
        """Raise TypeError or ValueError unless it is that of so many epochs, all in numbers."""
        for value in (*self.loss, *self.accuracy, *self.seconds):
            if not isinstance(value, int | float):
                raise TypeError(f"{value!r} in the history")
        if not isinstance(self.provenance, str):
            raise TypeError(f"the provenance {self.provenance!r}")
        if not len(self.loss) == len(self.seconds) == epochs >= len(self.accuracy):
            raise ValueError(f"a history of {len(self.loss)} epochs, not of {epochs}")

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

    def check(self):
        """Raise TypeError or ValueError unless all are counts and sums as `Trainer.fit` makes them."""
        for name in ("epochs", "batches", "examples"):
            if operator.index(getattr(self, name)) < 0:
                raise ValueError(f"{getattr(self, name)} {name}")
        if not isinstance(self.loss + self.seconds, int | float):
            raise TypeError(f"a loss of {self.loss!r}")
