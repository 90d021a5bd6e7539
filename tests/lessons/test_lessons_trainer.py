"""What the chapters show with processes: they end where one process with as many replicas does."""

import pytest
import torch

from d2lmini.distributed import run
from d2lmini.lessons import trainer

pytestmark = pytest.mark.process


def test_two_processes_train_what_one_does_with_each_engine():
    ranks = run(trainer.train, 2, ("ddp", "allreduce"), 1, 250, timeout=300)
    alone = trainer.train_alone(2, 1, 250)
    assert alone.history.loss[0] < 2.4
    for found in ranks:
        assert list(found) == ["ddp", "allreduce"]
        for engine, trained in found.items():
            assert all(torch.equal(p, q) for p, q in zip(trained.parameters, alone.parameters, strict=True)), engine
            assert trained.history.loss == alone.history.loss
            assert trained.history.accuracy == alone.history.accuracy
            assert trained.learnt == 750
            assert trained.history.provenance.endswith(f"2 processes ({engine})")
