"""The program of the chapter on processes, in two real ones that torchrun starts: the bits of two simulated ranks."""

import subprocess
import sys

import pytest
import torch
from torch.utils.data import TensorDataset

from d2lmini import sim
from d2lmini.data.datasets import load_data_digits
from d2lmini.lessons.ddp import train_digits

pytestmark = pytest.mark.process


def test_two_processes_learn_what_two_simulated_ranks_learn(tmp_path):
    file = tmp_path / "parameters.pt"
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    command += ["-m", "d2lmini.lessons.ddp", str(file)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "rank 0 of 2" in done.stdout
    sim.enable(2)
    train_iter, _ = load_data_digits(batch_size=64)
    digits = TensorDataset(train_iter.images / 255, train_iter.labels)
    first, second = sim.spawn(train_digits, ("sim", digits, 1), nprocs=2)
    assert torch.equal(first, second)
    torch.testing.assert_close(torch.load(file), first, rtol=1e-4, atol=1e-6)
