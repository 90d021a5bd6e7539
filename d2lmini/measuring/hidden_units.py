"""Training time by the number of hidden units: a weight of a large layer can take longer than one of a small layer.

On one thread, so that no core waits for another, in a process without the settings that hold a notebook back.
"""

from functools import partial
from itertools import pairwise

import torch
from torch import nn

from d2lmini.measuring.throughput import training_step
from d2lmini.measuring.unconstrained import run_unconstrained
from d2lmini.timing import measure


def two_hidden(units):
    """Return a network of two hidden layers of `units` each, for pictures of 28×28 and 10 classes."""
    widths = (784, units, units, 10)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def measure_here(sizes, batch=16, steps=10):
    """Measure a step of SGD on one thread of this process, after 3 that do not count, by the network's width.

    Args:
        sizes: Numbers of hidden units.
        batch: Examples in a batch.
        steps: How many are measured.

    Returns:
        units -> `Measurement`.
    """
    torch.set_num_threads(1)
    X, y = torch.rand(batch, 784), torch.zeros(batch, dtype=torch.long)
    return {units: measure(training_step(two_hidden(units), X, y), steps, 3, ["cpu"]) for units in sizes}


measured = partial(run_unconstrained, measure_here)  # the same, and where and when: see `run_unconstrained`
