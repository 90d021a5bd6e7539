"""Training time by the number of hidden units: where a layer's weights leave a level of memory, each one takes longer.

On one thread, so that no core waits for another, in a process without the settings that hold a notebook back. As a
program it prints what `measured` reads: ``python -m d2lmini.measuring.hidden_units 16 10 128 256 512``.
"""

import json
import sys
import time
from itertools import pairwise

import torch
from torch import nn

from d2lmini.hardware import host
from d2lmini.measuring.throughput import training_step
from d2lmini.measuring.unheld import run_unheld
from d2lmini.timing import Measurement, provenance


def two_hidden(units, inputs=784, outputs=10):
    """Return a network of two hidden layers of `units` each, for pictures of 28×28."""
    widths = (inputs, units, units, outputs)
    layers = [layer for a, b in pairwise(widths) for layer in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers[:-1])


def steps_seconds(units, batch, steps, warmup=3):
    """Return the seconds of each of `steps` steps of SGD, after `warmup` that do not count."""
    step = training_step(two_hidden(units), torch.rand(batch, 784), torch.zeros(batch, dtype=torch.long))
    seconds = []
    for _ in range(warmup + steps):
        start = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - start)
    return seconds[warmup:]


def measured(sizes, batch=16, steps=10, timeout=300):
    """Return units -> `Measurement` of a step of `two_hidden`, and where and when it was measured.

    Raises RuntimeError with the last line of what went wrong.
    """
    answer = run_unheld(__spec__.name, batch, steps, *sizes, timeout=timeout)
    return {int(n): Measurement(tuple(sorted(seconds))) for n, seconds in answer["steps"].items()}, answer["where"]


if __name__ == "__main__":
    batch, count, *sizes = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    found = {n: [round(s, 7) for s in steps_seconds(n, batch, count)] for n in sizes}
    caches = [(cache.level, cache.nbytes) for cache in host.caches()]
    print(json.dumps({"where": provenance(["cpu"]), "caches": caches, "batch": batch, "steps": found}))
