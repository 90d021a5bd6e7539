"""Measuring in a process of its own, without the settings that hold this one back: one thread, or old instructions.

The book's notebooks run under such settings, so that their sums are the same everywhere. Speed is no such matter.
"""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import torch

from d2lmini import host
from d2lmini.timing import SLOWING, provenance

# What would hold a measurement of this machine's best back: the settings of `timing`, and those that limit threads.
CONSTRAINTS = (*SLOWING, "OMP_NUM_THREADS", "MKL_NUM_THREADS", "NUMBA_NUM_THREADS")
TIMEOUT = 300  # seconds


def run_unconstrained(function, *arguments, **keywords):
    """Call a function in a process without the settings in `CONSTRAINTS`.

    Args:
        function: A function of a module of this package.
        arguments, keywords: What it is called with.

    Returns:
        What it returned, and where and when it was measured, as `timing.provenance` says it.

    Raises:
        RuntimeError: It failed there, with the last line of the error, or took longer than `TIMEOUT`.
    """
    environment = {name: value for name, value in os.environ.items() if name not in CONSTRAINTS}
    path = [str(Path(__file__).resolve().parents[2]), environment.get("PYTHONPATH")]
    environment |= {"PYTHONPATH": os.pathsep.join(filter(None, path)), "D2LMINI_DEVICES": "cpu"}
    command, call = [sys.executable, "-m", __spec__.name], pickle.dumps((function, arguments, keywords))
    try:
        done = subprocess.run(command, input=call, env=environment, capture_output=True, timeout=TIMEOUT, check=False)
    except subprocess.TimeoutExpired:
        raise RuntimeError(f"measuring with {function.__module__} did not finish within {TIMEOUT} s") from None
    if done.returncode:
        reason = (done.stderr.decode().strip().splitlines() or [f"it ended with status {done.returncode}"])[-1]
        raise RuntimeError(f"measuring with {function.__module__} failed: {reason}")
    return pickle.loads(done.stdout)


if __name__ == "__main__":
    torch.set_num_threads(host.usable_cores())
    function, arguments, keywords = pickle.load(sys.stdin.buffer)
    answer = function(*arguments, **keywords)
    sys.stdout.buffer.write(pickle.dumps((answer, provenance(["cpu"]))))
