"""Measuring in a process of its own, without the settings that hold this one back: one thread, or old instructions.

The book's notebooks run under such settings, so that their sums are the same everywhere. Speed is no such matter.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

from d2lmini.timing import SLOWING

# What would hold a measurement of this machine's best back: the settings of `timing`, and those that limit threads.
HELD = (*SLOWING, "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")


def run_unheld(module, *arguments, timeout):
    """Run ``python -m module arguments`` without `HELD` and return what it prints as JSON; `timeout` in seconds.

    Raises RuntimeError with the last line of what went wrong there, or when it takes longer.
    """
    environment = {name: value for name, value in os.environ.items() if name not in HELD}
    path = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH")]
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, path)), "D2LMINI_DEVICES": "cpu"}
    command = [sys.executable, "-m", module, *map(str, arguments)]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=timeout, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"measuring with {module} did not finish within {timeout} s") from None
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise RuntimeError(f"measuring with {module} failed: {reason}")
    return json.loads(done.stdout)
