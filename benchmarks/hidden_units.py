"""Time of a training step by the number of hidden units, as `chapters/results/hidden_units.json` holds it.

    python benchmarks/hidden_units.py 128 256 512 1024 > chapters/results/hidden_units.json
"""

import json
import sys

from d2lmini.hardware import host
from d2lmini.measuring.hidden_units import measured

BATCH, STEPS = 16, 10

if __name__ == "__main__":
    found, where = measured(map(int, sys.argv[1:]), BATCH, STEPS)
    steps = {units: [round(s, 7) for s in measurement.seconds] for units, measurement in found.items()}
    caches = [(cache.level, cache.nbytes) for cache in host.caches()]
    print(json.dumps({"where": where, "caches": caches, "batch": BATCH, "steps": steps}))
