"""DistributedDataParallel over two real processes against one: parameters and buckets."""

import pytest
import torch

from d2lmini.distributed import run
from d2lmini.lessons import ddp

pytestmark = pytest.mark.process


def test_two_processes_take_the_steps_of_one():
    ranks = run(ddp.train, 2, 2, 6, 0.1, 0.5, timeout=300)
    alone = ddp.train_alone(2, 6, 0.1)
    for params, _ in ranks:
        for p, q, first in zip(params, alone, ranks[0][0], strict=True):
            torch.testing.assert_close(p, q, rtol=1e-12, atol=1e-14)
            assert torch.equal(p, first)
    before = ddp.train_alone(0, 6, 0.1)
    assert not any(torch.equal(p, q) for p, q in zip(alone, before, strict=True))  # they did learn
    dense, convolutions = [[10], [10, 128], [128], [128, 800]], [[50, 20, 5, 5], [50], [20, 1, 3, 3], [20]]
    assert [seen for _, seen in ranks] == [[dense, convolutions]] * 2
