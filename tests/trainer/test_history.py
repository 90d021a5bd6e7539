"""The history prints itself, draws itself, and a loss that is not finite is named by epoch, batch and rank."""

import math
import re
import xml.etree.ElementTree as ET
from collections import Counter
from functools import partial, partialmethod
from urllib.parse import unquote

import pytest
import torch
from torch import nn

import simgpu
from d2lmini.distributed.errors import DivergedError
from d2lmini.figures import plots
from d2lmini.trainer.history import History, LossLog, finite
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.1)
RECORD = History([2.0, 1.0, 0.5], [0.25, 0.5, 0.75], [3.0, 2.0, 2.0], "simulated on a machine")


def data(bad=(), value=float("nan")):
    """Six batches of four; `bad` are examples with a target that makes the loss what `value` is."""
    X, y = torch.ones(24, 2), torch.zeros(24, 1)
    y[list(bad)] = value
    return list(zip(X.split(4), y.split(4), strict=True))


def test_a_history_is_a_table():
    lines = str(RECORD).splitlines()
    assert lines[0].split("  ")[0] == "epoch"
    assert lines[0].endswith("simulated seconds")
    assert lines[2].split() == ["2", "1.0000", "0.5000", "2"]
    assert lines[-1] == "(simulated on a machine)"
    assert str(History([1.0], [], [2.0])).splitlines()[1].split() == ["1", "1.0000", "–", "2"]
    assert len({len(line) for line in lines[:-1]}) == 1


def test_a_history_draws_itself():
    html = RECORD._repr_html_()
    assert 'alt="3 epochs: training loss from 2 to 0.5; test accuracy from 0.25 to 0.75"' in html
    [source] = re.findall(r'src="data:image/svg\+xml,([^"]*)"', html)
    assert ET.fromstring(unquote(source)).tag.endswith("svg")
    assert History()._repr_html_() is None
    loss, accuracy = plots.history(RECORD).axes
    assert loss.lines[0].get_xydata().tolist() == [[1, 2.0], [2, 1.0], [3, 0.5]]
    assert (loss.get_ylabel(), accuracy.get_ylabel()) == ("training loss", "test accuracy")
    assert len(plots.history(History([1.0], [], [1.0])).axes) == 1


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
@pytest.mark.parametrize(("bad", "batch", "rank"), [([0], 1, 0), ([15], 4, 2), ([14, 17], 4, 1)])
def test_a_loss_that_is_not_finite_is_named(value, bad, batch, rank):
    simgpu.enable(3)
    trainer = Trainer(nn.Linear(2, 1), nn.MSELoss(), SGD, ["sim:0", "sim:1", "sim:2"])
    words = rf"the loss is {value} in epoch 1, batch {batch}, on sim:{rank} \(rank {rank}\): lower the learning"
    with pytest.raises(DivergedError, match=words):
        trainer.fit(data(bad, value), 2)


def test_a_parameter_that_is_not_finite_is_seen_though_no_loss_shows_it(tmp_path):
    class Edge(nn.Module):
        """Its value at 0 is 0, and the gradient there infinite."""

        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.zeros(1))

        def forward(self, X):
            return self.p.sqrt().expand(len(X), 1)

    trainer = Trainer(Edge(), nn.L1Loss(), SGD, ["cpu"])
    with pytest.raises(DivergedError, match="parameter"):
        trainer.fit([(torch.ones(4, 2), torch.ones(4, 1))], 1, checkpoint=tmp_path / "c.pt")
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2], True),
        ([3e38, 3e38], True),
        ([1, math.nan], False),
        ([math.inf, -math.inf], False),
        ([3e38, -3e38], True),
        ([-math.inf, 1], False),
        ([], True),
    ],
)
def test_parameters_are_finite_even_if_their_sum_is_not(values, expected):
    model = nn.Linear(2, 1)
    model.more = nn.Parameter(torch.tensor(values, dtype=torch.float32))
    assert finite(model.parameters()) is expected


class Ranks:
    """As many ranks as `slower` has entries, of which this is rank 0: that rank takes so many times as long."""

    def __init__(self, *slower, processes=True):
        self.slower, self.world_size, self.places = slower, len(slower), ["cpu"] * len(slower)
        self.here, self.reads, self.alone = range(1 if processes else len(slower)), [], not processes

    def gather(self, rows):
        if isinstance(rows[0], float):
            return [rows[0] * times for times in self.slower]
        self.reads.append(len(rows[0]))
        return [*rows, *([[]] * (self.world_size - len(rows)))]


def test_losses_are_read_seldom_and_added_in_order(monkeypatch):
    monkeypatch.setattr(LossLog, "EVERY", 4)
    ranks = Ranks(1, 1, processes=False)
    log = LossLog(1, False, ranks)
    for i in range(10):
        log.add([(3, torch.tensor(float(i))), (2, torch.tensor(0.5))][: 1 + i % 2])
    log.read()
    log.read()
    assert ranks.reads == [4, 4, 2, 0]
    assert (log.batches, log.examples, log.total) == (10, 3 * 10 + 2 * 5, 3 * 45 + 2 * 0.5 * 5)


def test_processes_read_losses_often_enough_to_tell_of_a_nan_soon_and_all_at_once():
    now, ranks = [0.0], Ranks(1, 4)
    log = LossLog(1, False, ranks, clock=lambda: now[0])
    for seconds in [1.0] + [0.5] * 5 + [0.001] * 400 + [9.0] * 300:
        now[0] += seconds
        log.add([(1, torch.tensor(1.0))])
    assert ranks.reads[:4] == [1, 1, 2, 2]  # 5 s of the slower rank: 1.25 batches of 1 s, 2.5 of half a second
    assert max(ranks.reads) == LossLog.EVERY
    assert ranks.reads[-20:] == [1] * 20


def test_training_waits_for_the_devices_once_an_epoch(monkeypatch):
    calls = Counter()

    def counted(self, name, method):
        calls[name] += 1
        return method(self)

    for name in ("item", "__float__", "__bool__", "tolist"):
        monkeypatch.setattr(torch.Tensor, name, partialmethod(counted, name, getattr(torch.Tensor, name)))
    Trainer(nn.Linear(2, 1), nn.MSELoss(), SGD, ["cpu"] * 2, clip=1.0).fit(data(), 3)
    assert calls == {"item": 3, "tolist": 3 * 2}  # whether parameters are finite; losses, a transfer for each replica


class Counting:
    """Batches that are counted by the epoch, as those are which each epoch shuffles in another way."""

    epoch = 0

    def __len__(self):
        return len(data())

    def __iter__(self):
        self.epoch += 1
        return iter(data())


@pytest.mark.parametrize(
    ("terminal", "disabled", "shown"), [(True, "", True), (False, "", False), (True, "1", False), (None, "", False)]
)
def test_the_bar_shows_on_a_terminal_only_and_can_be_turned_off(monkeypatch, capsys, terminal, disabled, shown):
    monkeypatch.setenv("TQDM_DISABLE", disabled)
    monkeypatch.setattr("sys.stderr.isatty", lambda: terminal, raising=False)
    batches = Counting()
    with monkeypatch.context() as patch:
        if terminal is None:  # closed by the shell
            patch.setattr("sys.stderr", None)
        Trainer(nn.Linear(2, 1), nn.MSELoss(), SGD, ["cpu"]).fit(batches, 2)
    assert batches.epoch == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert ("epoch 2" in err and "/6 [" in err) == shown
    assert (err == "") != shown
