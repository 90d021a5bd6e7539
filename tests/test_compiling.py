"""A compiled step is the step: against the uncompiled run, resumed, on several replicas; refused where it cannot be."""

import shutil
from functools import partial

import pytest
import torch
from torch import nn

from d2lmini import compiling, sim
from d2lmini.data import Batches
from d2lmini.models import LeNet
from d2lmini.sync_batch_norm import SyncBatchNorm
from d2lmini.trainer import Trainer

MEAN = nn.CrossEntropyLoss()
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
# Sums of some hundred float32 terms in another order, over a dozen updates.
NEAR = {"rtol": 1e-4, "atol": 1e-5}


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keep compiled code in a folder of this run, one for all of its tests."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))


def batches(n=20, size=8):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Batches(images, torch.arange(n) % 3, size, shuffle=True)


def linear():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 3))


def trained(compile, k=1, epochs=3, model=linear, **options):
    trainer = Trainer(model(), MEAN, SGD, ["cpu"] * k, compile=compile, **options)
    trainer.fit(batches(), epochs, batches())
    return trainer


def parameters(trainer):
    return [p.detach() for p in trainer.replicas[0].state_dict().values()]


@needs_compiler
@pytest.mark.parametrize(("k", "options"), [(1, {}), (3, {"accumulate": 2, "clip": 0.5})])
def test_compiled_or_not_the_run_is_the_same(k, options):
    torch._dynamo.reset()
    torch._dynamo.utils.counters.clear()
    ours, plain = trained("reduce-overhead", k, **options), trained(None, k, **options)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] > 0  # something was compiled
    assert not torch._dynamo.utils.counters["graph_break"]
    assert ours.history.loss == pytest.approx(plain.history.loss, rel=1e-4)
    for p, q in zip(parameters(ours), parameters(plain), strict=True):
        torch.testing.assert_close(p, q, **NEAR)
    for p, q in zip(ours.replicas[0].parameters(), ours.replicas[-1].parameters(), strict=True):
        assert torch.equal(p, q)
