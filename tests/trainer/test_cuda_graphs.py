"""A recorded step is the step: against the run without, through sizes, settings and checkpoints that change.

On a machine without CUDA a stand-in records: it notes the operations of a step and what they read and write, undoes
them, and repeats them when replayed, so that what Python does only once shows as it would with a CUDA graph.
"""

import gc
import weakref
from contextlib import contextmanager
from functools import partial
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from d2lmini import sim
from d2lmini.data.datasets import Batches, load_data_digits
from d2lmini.models.lenet import LeNet
from d2lmini.trainer import cli, cuda_graphs
from d2lmini.trainer import options as arguments
from d2lmini.trainer.settings import Settings, broken
from d2lmini.trainer.trainer import Trainer

MEAN = nn.CrossEntropyLoss()
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
STEP = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)
needs_cuda = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")


class Notes(TorchDispatchMode):
    """Notes each operation with its operands and its result, and keeps what operands held before they were changed."""

    def __init__(self):
        super().__init__()
        self.operations, self.before = [], []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func is torch.ops.aten._local_scalar_dense.default:
            raise RuntimeError("operation not permitted when stream is capturing\nand more")
        kwargs = kwargs or {}
        operands = [x for x in tree_leaves((args, kwargs)) if isinstance(x, torch.Tensor)]
        self.before += [(x, x.clone()) for x in operands]  # schemas don't say that batch norm changes its running means
        out = func(*args, **kwargs)
        self.operations.append((func, args, kwargs, out))
        return out

    def undo(self):
        with torch.no_grad():
            for tensor, value in reversed(self.before):
                tensor.copy_(value)

    @torch.no_grad()
    def repeat(self):
        for func, args, kwargs, out in self.operations:
            new = func(*args, **kwargs)
            for kept, made in zip(*((x if isinstance(x, (list, tuple)) else [x]) for x in (out, new)), strict=True):
                if isinstance(kept, torch.Tensor) and kept.data_ptr() != made.data_ptr():
                    kept.copy_(made)


class StandIn:
    """What `CudaRecorder` is, for the CPU."""

    def __init__(self, device):
        self.device, self.eager, self.recorded, self.replayed = device, 0, 0, 0

    @contextmanager
    def beside(self):
        self.eager += 1
        yield

    def record(self, function, *tensors):
        numbers, notes = torch.get_rng_state(), Notes()
        with notes:
            returned = function(*tensors)
        notes.undo()
        torch.set_rng_state(numbers)
        self.recorded += 1

        def replay():
            self.replayed += 1
            notes.repeat()

        return replay, returned


@pytest.fixture
def on_cpu(monkeypatch):
    """Let the CPU be recorded."""
    monkeypatch.setattr("d2lmini.trainer.trainer.check", lambda *_: None)
    monkeypatch.setattr(cuda_graphs, "CudaRecorder", StandIn)


def batches(n=20, size=8, **options):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Batches(images, torch.arange(n) % 3, size, shuffle=True, **options)


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Dropout(0.3), nn.Linear(8, 3))


def trained(compile, optimizer=SGD, epochs=4, data=None, device="cpu", model=None, **options):
    trainer, data = Trainer(model or net(), MEAN, optimizer, [device], compile=compile, **options), data or batches()
    torch.manual_seed(1)
    trainer.fit(data, epochs, Batches(data.images[:6], data.labels[:6], 3))
    return trainer


def check_same(ours, plain, exact=True):
    tolerance = {} if exact else {"rtol": 2e-3, "atol": 2e-4}  # float32 in another order, and TF32 in convolutions
    assert ours.history.loss == pytest.approx(plain.history.loss, rel=0 if exact else 1e-3)
    for p, q in zip(ours.replicas[0].state_dict().values(), plain.replicas[0].state_dict().values(), strict=True):
        assert torch.equal(p, q) if exact else torch.testing.assert_close(p, q, **tolerance) is None


def counts(trainer):
    recorder = trainer.engine.learn.recorder
    return recorder.eager, recorder.recorded, recorder.replayed


@pytest.mark.parametrize(("optimizer", "options", "expected"), [
    (SGD, {}, (3, 2, 9)),  # the first step makes the momentum, so sizes 8 and 4 count from the second
    (partial(torch.optim.SGD, lr=0.1), {"clip": 0.5}, (2, 2, 10)),
    (partial(torch.optim.SGD, lr=0.1), {"amp": torch.bfloat16}, (2, 2, 10)),
    (SGD, {"schedule": STEP}, (9, 3, 3)),  # another learning rate in every epoch: size 8 is recorded anew
    (partial(torch.optim.SGD, lr=0.1), {"schedule": partial(torch.optim.lr_scheduler.StepLR, step_size=9)}, (2, 2, 10)),
], ids=["momentum", "clip", "bfloat16", "a rate an epoch", "a constant rate"])  # fmt: skip
def test_it_is_the_run_without_to_the_bit(on_cpu, optimizer, options, expected):
    ours, plain = (trained(mode, optimizer, **options) for mode in ("cuda-graph", None))
    check_same(ours, plain)
    assert counts(ours) == expected
    assert sum(expected) - expected[1] == 12  # batches: each ran as it is or was replayed


def test_losses_lie_in_memory_of_their_own(on_cpu):
    trainer = Trainer(net(), MEAN, SGD, ["cpu"], compile="cuda-graph")
    X, y = torch.rand(8, 1, 4, 4), torch.arange(8) % 3
    losses = [trainer.step(X, y) for _ in range(6)]
    assert len({float(loss) for loss in losses}) == 6
    assert counts(trainer)[2] == 4


def test_a_batch_may_lie_anywhere_and_is_left_alone(on_cpu):
    ours, plain = (Trainer(net(), MEAN, SGD, ["cpu"], compile=mode) for mode in ("cuda-graph", None))
    given = [(torch.full((8, 1, 4, 4), 0.1 * turn), (torch.arange(8) + turn) % 3) for turn in range(6)]
    before = [(X.clone(), y.clone()) for X, y in given]
    for trainer in (ours, plain):
        torch.manual_seed(1)
        for batch in given:
            trainer.step(*batch)
    assert all(map(torch.equal, tree_leaves(given), tree_leaves(before)))  # those that were recorded with, too
    check_same(ours, plain)


def test_a_checkpoint_that_is_loaded_makes_recordings_anew(on_cpu, tmp_path):
    """Its optimiser's tensors take the place of those that were recorded."""
    plain = trained(None, epochs=4)
    ours = Trainer(net(), MEAN, SGD, ["cpu"], compile="cuda-graph")
    torch.manual_seed(1)
    ours.fit(batches(), 2, batches(6, 3), checkpoint=tmp_path / "c.pt")
    ours.fit(batches(), 4, batches(6, 3), checkpoint=tmp_path / "c.pt", resume=True)
    check_same(ours, plain)
    assert counts(ours)[1] == 2 + 2


@pytest.mark.parametrize("change", [
    lambda t: t.optimizers[0].param_groups[0].update(lr=0.01),
    lambda t: next(t.replicas[0].parameters()).requires_grad_(False),
    lambda t: setattr(t.replicas[0][1].weight, "data", t.replicas[0][1].weight.data.clone()),
    lambda t: t.optimizers[0].state.clear(),
    lambda t: t.replicas[0][2].eval(),
    lambda t: setattr(t.replicas[0][4], "p", 0.9),
    lambda t: setattr(t.replicas[0][2], "momentum", 0.9),
], ids=["rate", "frozen", "moved", "forgotten", "one layer evaluates", "dropout", "a layer's rate"])  # fmt: skip
def test_what_changes_between_steps_is_heeded(on_cpu, change):
    ours, plain = (Trainer(net(), MEAN, SGD, ["cpu"], compile=mode) for mode in ("cuda-graph", None))
    for trainer in (ours, plain):
        torch.manual_seed(1)
        for turn in range(10):
            if turn == 5:
                change(trainer)
            trainer.step(torch.full((8, 1, 4, 4), 0.1 * turn), torch.arange(8) % 3)
    check_same(ours, plain)
    assert counts(ours)[1] == 2


def test_evaluating_makes_no_recording_anew(on_cpu):
    ours, plain = (Trainer(net(), MEAN, SGD, ["cpu"], compile=mode) for mode in ("cuda-graph", None))
    for trainer in (ours, plain):
        torch.manual_seed(1)
        for _ in range(6):
            trainer.step(torch.ones(8, 1, 4, 4), torch.arange(8) % 3)
            assert all(module.training for module in trainer.replicas[0].modules())
            trainer.evaluate(batches(6, 3))
    check_same(ours, plain)
    assert counts(ours) == (2, 1, 4)


def test_a_bad_batch_is_refused_each_time_and_never_recorded(on_cpu):
    trainer = Trainer(net(), MEAN, SGD, ["cpu"], compile="cuda-graph")
    for _ in range(3):
        with pytest.raises(ValueError, match="labels"):
            trainer.step(torch.rand(8, 1, 4, 4), torch.arange(7))
    assert counts(trainer)[1:] == (0, 0)


def test_an_optimiser_that_counts_on_the_host_is_refused(on_cpu):
    trainer = Trainer(net(), MEAN, torch.optim.Adam, ["cpu"], compile="cuda-graph")
    batch = torch.rand(8, 1, 4, 4), torch.arange(8) % 3
    trainer.step(*batch)
    trainer.comm.devices = [torch.device("cuda", 0)]  # where parameters would be, and Adam's count would not
    with pytest.raises(ValueError, match="capturable=True"):
        trainer.step(*batch)


@pytest.mark.parametrize(("mode", "expected"), [("cuda-graph", True), ("default", False)])
def test_the_command_line_lets_adam_count_on_the_gpu(monkeypatch, mode, expected):
    monkeypatch.setattr(cli, "Trainer", lambda model, loss, optimizer, *_, **options: optimizer(model.parameters()))
    options = arguments.parse(["--optimizer", "adam", "--compile", mode])
    assert cli.make_trainer(options, ["cuda:0"]).defaults["capturable"] is expected


@pytest.mark.parametrize(("devices", "options", "line"), [
    (["cpu"], {}, "CUDA GPU, got cpu"),
    (["sim:0"], {}, "CUDA GPU, got sim:0"),
    (["cuda:0", "cuda:1"], {}, "one CUDA GPU"),
    (["cuda:0"], {"accumulate": 2}, "accumulate"),
    (["cuda:0"], {"amp": torch.float16}, "float16"),
    (["cuda:0"], {"schedule": STEP, "schedule_every": "update"}, "schedule_every"),
])  # fmt: skip
@pytest.mark.parametrize("mode", ["cuda-graph", "compiled-cuda-graph"])
def test_what_cannot_be_recorded_is_refused_before_anything_moves(mode, devices, options, line):
    sim.enable(2)
    model = net()
    with pytest.raises(ValueError, match=f"compile: .*{line}"):
        Trainer(model, MEAN, SGD, devices, compile=mode, **options)
    assert next(model.parameters()).device.type == "cpu"


def test_processes_are_not_recorded():
    for engine in ("ddp", "allreduce", "replicas"):
        found = broken(Settings(compile="cuda-graph", engine=engine), [torch.device("cuda:0")])
        assert (found is None) == (engine == "replicas")


@pytest.mark.parametrize(("mode", "beneath"), [("cuda-graph", []), ("compiled-cuda-graph", ["default"])])
def test_what_is_recorded_is_compiled_if_so_named(on_cpu, monkeypatch, mode, beneath):
    modes = []
    monkeypatch.setattr(torch, "compile", lambda function, mode, dynamic: modes.append(mode) or function)
    check_same(trained(mode), trained(None))
    assert modes == beneath


def test_a_trainer_that_is_dropped_is_gone(on_cpu):
    trainer = trained("cuda-graph")
    model = weakref.ref(trainer.replicas[0])
    del trainer
    gc.collect()
    assert model() is None


class Cuda:
    """Plays torch.cuda, and writes down what it is asked to do."""

    def __init__(self, log):
        self.log, self.now = log, "main"

    def current_stream(self, device):
        return self._named(self.now)

    def Stream(self, device):
        return self._named("side")

    def _named(self, name):
        return SimpleNamespace(name=name, wait_stream=lambda other: self.log.append(f"{name} after {other.name}"))

    @contextmanager
    def stream(self, stream):
        before, self.now = self.now, stream.name
        try:
            yield
        finally:
            self.now = before

    def CUDAGraph(self):
        return SimpleNamespace(replay=lambda: self.log.append(f"replay in {self.now}"))

    @contextmanager
    def graph(self, graph, stream, capture_error_mode):
        self.log.append(f"begin in {stream.name}, {capture_error_mode}")
        try:
            yield
        finally:
            self.log.append("end")
            if "broken" in self.log:
                raise RuntimeError("operation failed due to a previous error during capture")


def test_streams_wait_for_each_other(monkeypatch):
    log = []
    cuda = Cuda(log)
    monkeypatch.setattr(torch, "cuda", cuda)
    recorder = cuda_graphs.CudaRecorder(torch.device("cuda", 0))
    with recorder.beside():
        log.append(f"work in {cuda.now}")
    replay, returned = recorder.record(lambda x: log.append(f"work in {cuda.now}") or x, 5)
    replay()
    assert returned == 5
    assert log == ["side after main", "work in side", "main after side",
                   "side after main", "begin in side, thread_local", "work in side", "end", "main after side",
                   "replay in main"]  # fmt: skip


def test_a_step_that_waits_for_the_gpu_is_one_line_and_leaves_the_stream(monkeypatch):
    log = []
    cuda = Cuda(log)
    monkeypatch.setattr(torch, "cuda", cuda)

    def waits():
        log.append("broken")
        raise RuntimeError("operation not permitted when stream is capturing\nCompile with TORCH_USE_CUDA_DSA")

    line = r"^the step cannot be recorded as a CUDA graph: operation not permitted when stream is capturing: leave .*U$"
    with pytest.raises(RuntimeError, match=line):
        cuda_graphs.CudaRecorder(torch.device("cuda", 0)).record(waits)
    assert cuda.now == "main"


@pytest.mark.cuda
@needs_cuda
@pytest.mark.parametrize("options", [
    {}, {"clip": 0.5}, {"schedule": STEP}, {"amp": torch.bfloat16},
    {"optimizer": partial(torch.optim.Adam, lr=0.001, capturable=True)},
], ids=["momentum", "clip", "a rate an epoch", "bfloat16", "adam"])  # fmt: skip
def test_on_real_cuda_the_digits_are_learned_as_without(options):
    train_iter, _ = load_data_digits(256)
    there = train_iter.to("cuda:0")
    made = [trained(mode, data=there.to("cuda:0"), device="cuda:0", model=LeNet(), **options)
            for mode in ("cuda-graph", None)]  # fmt: skip
    loose = 0.05 if options.get("amp") else 5e-3  # atomic sums and TF32, over some twenty updates
    assert made[0].history.loss == pytest.approx(made[1].history.loss, rel=loose)
    assert made[0].history.loss[-1] < made[0].history.loss[0]
