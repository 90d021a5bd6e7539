"""What a run of the trainer recorded, as plain numbers, so that a checkpoint can hold it; `figures.plots` draws it."""

import math
from dataclasses import dataclass, field
from itertools import zip_longest


@dataclass
class History:
    """What `Trainer.fit` recorded, one entry an epoch; printed, it is a table, and `plots.history` draws it.

    `loss`: the mean over the training examples; `accuracy`: the fraction of test examples right, empty when there was
    no test set; `seconds`: of training only, after every device had finished, simulated on simulated devices.
    `provenance`: where the seconds come from, in the words of `timing.provenance`.
    """

    loss: list[float] = field(default_factory=list)
    accuracy: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    provenance: str = ""

    def check(self):
        """Raise TypeError or ValueError unless its lists are of as many epochs, of numbers that a run may give."""
        numbers = [*self.loss, *self.accuracy, *self.seconds]
        if not all(isinstance(number, int | float) for number in numbers):
            raise TypeError("a history of what are no numbers")
        epochs = len(self.loss)
        if len(self.seconds) != epochs or len(self.accuracy) > epochs or not isinstance(self.provenance, str):
            raise ValueError(f"a history of {epochs} losses, {len(self.seconds)} times, {self.provenance!r}")
        fine = all(map(math.isfinite, numbers)) and all(0 <= a <= 1 for a in self.accuracy)
        if not fine or any(s < 0 for s in self.seconds):
            raise ValueError("a history with a number that no run gives")

    def __str__(self):
        kind = self.provenance.split(" ")[0]
        lines = [f"epoch  training loss  test accuracy  {f'{kind} seconds'.strip():>17}"]
        rows = zip_longest(self.loss, self.accuracy, self.seconds)
        for epoch, (loss, accuracy, seconds) in enumerate(rows, start=1):
            right = "–" if accuracy is None else f"{accuracy:.4f}"
            lines.append(f"{epoch:5d}  {loss:13.4f}  {right:>13}  {seconds:17.4g}")
        return "\n".join([*lines, f"({self.provenance})"])
