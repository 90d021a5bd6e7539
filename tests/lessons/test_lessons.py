"""What the chapter's processes run: the same bits as in one process, and a time for each call."""

import pytest
import torch

from d2lmini.collectives import on_devices, schedules
from d2lmini.distributed import run
from d2lmini.lessons import allreduce

pytestmark = pytest.mark.process


def test_processes_get_the_bits_of_the_devices():
    rows = torch.arange(3 * 101).reshape(3, 101) * torch.tensor([1.0, 1e4, 1e8])[:, None] / 3
    sums = run(allreduce.add_up, 3, tuple(schedules.ALLREDUCE), rows)
    for name in schedules.ALLREDUCE:
        data = list(rows.clone())
        on_devices.allreduce(data, name)
        assert all(torch.equal(process[name], device) for process, device in zip(sums, data))


def test_times_of_every_algorithm_and_size():
    times = run(allreduce.seconds, 2, ("gloo", "ring"), (1, 100), 3)
    for rank in times:
        assert list(rank) == [("gloo", 1), ("gloo", 100), ("ring", 1), ("ring", 100)]
        assert all(len(seconds) == 3 and min(seconds) > 0 for seconds in rank.values())
