"""Time of a training step by the number of hidden units, as `chapters/results/hidden_units.json` holds it.

    python benchmarks/hidden_units.py 128 256 512 1024 > chapters/results/hidden_units.json

Measured twice: as it comes, and with glibc told to keep the memory that it was once given by the system.
"""

import json
import os
import sys

from d2lmini import host
from d2lmini.measuring.hidden_units import measured

BATCH, STEPS = 16, 25
KEEPING = {"MALLOC_MMAP_MAX_": "0", "MALLOC_TRIM_THRESHOLD_": "4000000000"}


def steps(sizes):
    """Return the seconds of each step by the number of units, and where they were measured."""
    found, where = measured(sizes, BATCH, STEPS)
    return {units: [round(s, 7) for s in measurement.seconds] for units, measurement in found.items()}, where


if __name__ == "__main__":
    sizes = [int(word) for word in sys.argv[1:]]
    found, where = steps(sizes)
    os.environ.update(KEEPING)
    kept, _ = steps(sizes)
    caches = [(cache.level, cache.nbytes) for cache in host.caches()]
    print(json.dumps({"where": where, "caches": caches, "batch": BATCH, "steps": found, "kept": kept}))
