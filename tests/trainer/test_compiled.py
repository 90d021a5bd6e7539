"""A compiled step is the step: against the uncompiled run, resumed, on several replicas; refused where it cannot be."""

import inspect
import shutil
from functools import partial

import pytest
import torch
from process_cases import Stopped, Stopping
from torch import nn

from d2lmini import sim
from d2lmini.data.datasets import Batches, load_data_digits
from d2lmini.data_parallel.sync_batch_norm import SyncBatchNorm
from d2lmini.models.lenet import LeNet
from d2lmini.trainer.settings import Settings, broken
from d2lmini.trainer.trainer import Trainer

MEAN = nn.CrossEntropyLoss()
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
needs_compiler = pytest.mark.skipif(not (shutil.which("g++") or shutil.which("clang++")), reason="needs a C++ compiler")
NEAR = {"rtol": 1e-4, "atol": 1e-5}  # float32 sums in another order, over some ten updates


@pytest.fixture(autouse=True)
def own_cache(tmp_path_factory, monkeypatch):
    """Keep compiled code in a folder of this run, one for all of its tests, and compile in this process alone."""
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path_factory.getbasetemp() / "inductor"))
    monkeypatch.setenv("TORCHINDUCTOR_COMPILE_THREADS", "1")


def batches(n=20, size=8):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Batches(images, torch.arange(n) % 3, size, shuffle=True)


def linear(dropout=0.0):
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Dropout(dropout), nn.Linear(16, 3))


def trained(compile, k=1, model=None, data=None, epochs=3, **options):
    trainer = Trainer(model or linear(), MEAN, SGD, ["cpu"] * k, compile=compile, **options)
    trainer.fit(data or batches(), epochs)
    return trainer


def parameters(trainer):
    return [p.detach() for p in trainer.replicas[0].state_dict().values()]


def check_same(ours, plain):
    assert ours.history.loss == pytest.approx(plain.history.loss, rel=1e-4)
    for p, q in zip(parameters(ours), parameters(plain), strict=True):
        torch.testing.assert_close(p, q, **NEAR)
    for p, q in zip(ours.replicas[0].parameters(), ours.replicas[-1].parameters(), strict=True):
        assert torch.equal(p, q)


class Replay(torch.autograd.Function):
    """A step whose results lie, like those of CUDA graphs, where the next step's results will be written."""

    memory = {}  # noqa: RUF012 (one for all, as of one device)

    @staticmethod
    def put(place, value):
        kept = Replay.memory.setdefault((place, value.shape), torch.empty_like(value))
        return kept.copy_(value).detach()

    @staticmethod
    def forward(ctx, function, X, y, *params):
        with torch.enable_grad():
            value = function(X, y)
            ctx.gradients = torch.autograd.grad(value, params)
        return Replay.put("loss", value.detach())

    @staticmethod
    def backward(ctx, upstream):
        return None, None, None, *(Replay.put(i, g * upstream) for i, g in enumerate(ctx.gradients))


def replayed(function, mode, dynamic):
    """Stands in for torch.compile with CUDA graphs."""
    params = list(inspect.getclosurevars(function).nonlocals["module"].parameters())
    return lambda X, y: Replay.apply(function, X, y, *params)


@pytest.mark.parametrize("options", [{}, {"accumulate": 2}, {"clip": 0.5}, {"buckets": 0}], ids=str)
@pytest.mark.parametrize("k", [1, 3])
def test_what_a_graph_writes_over_was_copied_before(monkeypatch, k, options):
    monkeypatch.setattr(torch, "compile", replayed)
    Replay.memory.clear()
    check_same(trained("reduce-overhead", k, **options), trained(None, k, **options))
    assert Replay.memory


def test_mode_sizes_and_code_reach_torch(monkeypatch):
    asked = []

    def compile(function, **options):
        asked.append((function.__code__, options))
        return function

    monkeypatch.setattr(torch, "compile", compile)
    trained("default", 2)
    trained("max-autotune")
    assert [options["mode"] for _, options in asked] == ["default", "default", "max-autotune"]
    assert not any(options["dynamic"] for _, options in asked)
    assert len({code for code, _ in asked}) == 3  # each may have as many versions as torch keeps of one


@needs_compiler
@pytest.mark.long
def test_compiled_or_not_a_run_is_the_same():
    torch._dynamo.utils.counters.clear()
    ours, plain = (trained(mode, data=batches(16)) for mode in ("reduce-overhead", None))
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 1
    assert not torch._dynamo.utils.counters["graph_break"]
    check_same(ours, plain)


@needs_compiler
@pytest.mark.long
def test_compiled_lenet_on_several_replicas_with_accumulation():
    train, _ = load_data_digits(60)
    train.images, train.labels = train.images[:150], train.labels[:150]
    torch._dynamo.utils.counters.clear()
    for k, options in ((1, {}), (2, {"accumulate": 2, "clip": 1.0})):
        made = [trained(mode, k, LeNet(), Batches(train.images, train.labels, 60, shuffle=True), 2, **options)
                for mode in ("reduce-overhead", None)]  # fmt: skip
        check_same(*made)
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 2 + 4  # batches of 60 and of 30 a replica


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("mode", ["default", "reduce-overhead", "compiled-cuda-graph"])
def test_on_real_cuda_compiled_lenet_learns_the_digits_as_without(mode):
    train, test = load_data_digits(256)
    runs = [Trainer(LeNet(), MEAN, SGD, ["cuda:0"], compile=how).fit(train.to("cuda:0"), 4, test.to("cuda:0"))
            for how in (mode, None)]  # fmt: skip
    assert runs[0].loss == pytest.approx(runs[1].loss, rel=0.02)  # atomic sums and TF32, over some twenty updates
    assert runs[0].loss[-1] < 0.5 * runs[0].loss[0]


@needs_compiler
@pytest.mark.long
def test_a_compiled_run_in_two_parts_is_the_run_in_one_with_dropout_too(tmp_path):
    whole = trained("default", model=linear(0.5))
    cut = Stopping(batches(), 3 + 2)  # in the second epoch
    with pytest.raises(Stopped):
        Trainer(linear(0.5), MEAN, SGD, ["cpu"], compile="default").fit(cut, 3, checkpoint=tmp_path / "c.pt")
    torch._dynamo.reset()  # another process has compiled nothing yet
    resumed = Trainer(linear(0.5), MEAN, SGD, ["cpu"], compile="default")
    resumed.fit(batches(), 3, checkpoint=tmp_path / "c.pt", resume=True)
    assert resumed.history.loss == whole.history.loss
    assert all(torch.equal(p, q) for p, q in zip(parameters(whole), parameters(resumed), strict=True))


def test_what_cannot_be_compiled_is_refused_before_anything_moves():
    sim.enable(2)
    model = linear()
    with pytest.raises(ValueError, match="compile: simulated"):
        Trainer(model, MEAN, SGD, ["sim:0", "sim:1"], compile="default")
    assert next(model.parameters()).device.type == "cpu"
    with pytest.raises(ValueError, match=r"compile: .*'fast'"):
        Trainer(linear(), MEAN, SGD, ["cpu"], compile="fast")
    normed = SyncBatchNorm.convert(nn.Sequential(nn.Flatten(), nn.BatchNorm1d(16), nn.Linear(16, 3)))
    with pytest.raises(ValueError, match=r"compile.*batch norms"):
        Trainer(normed, MEAN, SGD, ["cpu"] * 2, compile="default")
    assert broken(Settings(), [torch.device("sim:0")]) is None


def test_a_compiler_that_fails_is_one_line(monkeypatch):
    def compile(function, **options):
        def fail(X, y):
            raise torch._dynamo.exc.BackendCompilerFailed(compile, OSError("No C++ compiler found\nin PATH"), None)

        return fail

    monkeypatch.setattr(torch, "compile", compile)
    with pytest.raises(RuntimeError, match=r"No C\+\+ compiler found$"):
        trained("default")
