"""Recorded steps: when a step is recorded and when replayed, what is refused; on a real GPU, the run without."""

from contextlib import nullcontext
from functools import partial

import pytest
import torch
from torch import nn

from d2lmini import sim
from d2lmini.data.datasets import load_data_digits
from d2lmini.models.lenet import LeNet
from d2lmini.trainer import cli, cuda_graphs
from d2lmini.trainer import options as arguments
from d2lmini.trainer.trainer import Trainer

MEAN = nn.CrossEntropyLoss()
SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
STEP = partial(torch.optim.lr_scheduler.StepLR, step_size=1, gamma=0.5)


def trainer(optimizer=SGD):
    layers = nn.Linear(16, 8), nn.BatchNorm1d(8), nn.Dropout(0.3), nn.Linear(8, 3)
    made = Trainer(nn.Sequential(nn.Flatten(), *layers), MEAN, optimizer, ["cpu"])
    made.step(torch.rand(8, 1, 4, 4), torch.arange(8) % 3)
    return made


class Recorder:
    """Records a function by keeping it, and writes down what it is asked for."""

    device = torch.device("cpu")

    def __init__(self):
        self.log = []

    def beside(self):
        self.log.append("eager")
        return nullcontext()

    def record(self, function, *tensors):
        self.log.append("record")
        shards = function(*tensors)

        def replay():
            self.log.append("replay")
            for (_, kept), (_, new) in zip(shards, function(*tensors), strict=True):
                kept.copy_(new)

        return replay, shards


def test_a_step_runs_once_is_recorded_and_then_replayed_for_each_size_while_the_facts_hold():
    recorder, now = Recorder(), [0]
    step = cuda_graphs.Recorded(lambda X, y: [(len(X), (X * y).sum())], lambda: list(now), recorder)
    sizes, losses = [4, 4, 2, 4, 2, 2], []
    for turn, n in enumerate(sizes):
        X, y = torch.full((n,), float(turn)), torch.ones(n)
        losses.append(step(X, y)[0][1])
        assert X.tolist() == [turn] * n  # the batch that was recorded with, too, is left alone
    assert [float(loss) for loss in losses] == [turn * n for turn, n in enumerate(sizes)]  # each in its own memory
    assert recorder.log == ["eager", "record", "replay", "eager", "replay", "record", "replay", "replay"]
    recorder.log.clear()
    now[0] = 1
    step(torch.ones(4), torch.ones(4))
    assert recorder.log == ["eager"]


@pytest.mark.parametrize("change", [
    lambda t: t.optimizers[0].param_groups[0].update(lr=0.01),
    lambda t: next(t.replicas[0].parameters()).requires_grad_(False),
    lambda t: setattr(t.replicas[0][1].weight, "data", t.replicas[0][1].weight.data.clone()),
    lambda t: t.optimizers[0].state.clear(),
    lambda t: t.replicas[0][2].eval(),
    lambda t: setattr(t.replicas[0][3], "p", 0.9),
], ids=["rate", "frozen", "moved", "forgotten", "one layer evaluates", "dropout"])  # fmt: skip
def test_what_a_replay_would_get_wrong_is_among_the_facts(change):
    made = trainer()
    before = cuda_graphs.facts(made.engine)
    made.step(torch.rand(8, 1, 4, 4), torch.arange(8) % 3)
    assert cuda_graphs.facts(made.engine) == before
    change(made)
    assert cuda_graphs.facts(made.engine) != before


def test_an_optimiser_that_counts_on_the_host_is_refused():
    made = trainer(torch.optim.Adam)
    made.comm.devices = [torch.device("cuda", 0)]  # where parameters would be, and Adam's count would not
    with pytest.raises(ValueError, match="capturable=True"):
        cuda_graphs.facts(made.engine)


@pytest.mark.parametrize("words", [[], ["--cuda-graph"]])
def test_the_command_line_lets_adam_count_on_the_gpu(monkeypatch, words):
    monkeypatch.setattr(cli, "Trainer", lambda model, loss, optimizer, *_, **options: optimizer(model.parameters()))
    options = arguments.parse(["--optimizer", "adam", *words])
    assert cli.make_trainer(options, ["cuda:0"]).defaults["capturable"] is bool(words)


@pytest.mark.parametrize(("devices", "options", "line"), [
    (["cpu"], {}, "CUDA GPU, got cpu"),
    (["sim:0"], {}, "CUDA GPU, got sim:0"),
    (["cuda:0", "cuda:1"], {}, "one CUDA GPU"),
    (["cuda:0"], {"accumulate": 2}, "accumulate"),
    (["cuda:0"], {"amp": torch.float16}, "float16"),
])  # fmt: skip
def test_what_cannot_be_recorded_is_refused_before_anything_moves(devices, options, line):
    sim.enable(2)
    model = nn.Linear(2, 2)
    with pytest.raises(ValueError, match=f"cuda_graph: .*{line}"):
        Trainer(model, MEAN, SGD, devices, cuda_graph=True, **options)
    assert next(model.parameters()).device.type == "cpu"


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("options", [
    {}, {"clip": 0.5}, {"schedule": STEP}, {"amp": torch.bfloat16},
    {"optimizer": partial(torch.optim.Adam, lr=0.001, capturable=True)},
], ids=["momentum", "clip", "a rate an epoch", "bfloat16", "adam"])  # fmt: skip
def test_on_real_cuda_the_digits_are_learned_as_without(options):
    train, test = load_data_digits(256)
    more = {"optimizer": SGD, **options}
    loose, optimizer = 0.05 if options.get("amp") else 5e-3, more.pop("optimizer")
    runs = [Trainer(LeNet(), MEAN, optimizer, ["cuda:0"], cuda_graph=how, **more).fit(train.to("cuda:0"), 4, test)
            for how in (True, False)]  # fmt: skip
    assert runs[0].loss == pytest.approx(runs[1].loss, rel=loose)  # atomic sums and TF32, over some twenty updates
    assert runs[0].loss[-1] < runs[0].loss[0]
