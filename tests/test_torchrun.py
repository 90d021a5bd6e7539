"""The command line under torchrun: what it prints and writes, and that all ranks end with one line when one fails."""

import os
import re
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

HERE = Path(__file__).parent
PROGRAM = "python -m d2lmini.train: error: "
WORDS = ["--epochs", "2", "--batch-size", "20", "--patience", "6"]
FAILURES = {  # (rank, how, engine) -> the line
    (1, "raises", "ddp"): "rank 1: this rank has no data",
    (0, "errs", "allreduce"): r"rank 0: KeyError: 'colour' \(line \d+ of .*failing_rank.py\)",
    (1, "exits", "allreduce"): r"rank 1 \(process \d+ on \S+\) was killed or has ended",
    (0, "is killed", "ddp"): r"rank 0 \(process \d+ on \S+\) was killed or has ended",
    (1, "stops", "ddp"): r"rank 1 \(process \d+ on \S+\) has given no sign of life for \d+ s: it is stopped, .*",
    (1, "hangs", "ddp"): r"rank 1 \(.*\) has done nothing for \d+ s while others waited: it is in __main__.<lambda>",
    (0, "hangs", "allreduce"): r"rank 0 \(.*\) has done nothing for .* it is in __main__.<lambda>",
    (1, "nan", "allreduce"): r"the loss is nan in epoch 1, batch 3, on cpu \(rank 1\): lower the learning rate, .*",
}


def torchrun(*words, folder=None):
    """Start torchrun with two processes of one thread each."""
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2", *map(str, words)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(HERE.parent), "TQDM_DISABLE": "1"}
    environment.pop("D2LMINI_DEVICES", None)
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment)


@pytest.fixture(scope="module")
def failed():
    """For each failure the exit code and what was printed; all run at once, for most of their time is waiting."""
    started = {case: torchrun(HERE / "failing_rank.py", *case[:2], "--engine", case[2], *WORDS) for case in FAILURES}
    found = {}
    for case, process in started.items():
        out, err = process.communicate(timeout=200)
        found[case] = process.returncode, out.splitlines(), err.splitlines()
    return found


@pytest.mark.parametrize("case", FAILURES, ids=lambda case: " ".join(map(str, case)))
def test_when_one_rank_fails_all_end_and_one_says_why(failed, case):
    code, out, err = failed[case]
    said = [line.removeprefix(PROGRAM) for line in err if line.startswith(PROGRAM)]
    assert code == 1
    assert len(said) == 1, err
    assert re.fullmatch(FAILURES[case], said[0])
    assert not any("gloo" in line and "LeNet" not in line for line in (*out, *err)), err
    processes = [int(line.split()[1]) for line in out if line.startswith("process")]
    assert len(processes) == 2
    assert not any(psutil.pid_exists(number) for number in processes)
