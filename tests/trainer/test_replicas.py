"""The equivalence table: k devices take the steps of one, whatever the loss, the optimiser and the cut of the batch.

In float64, so that only mistakes make a difference: rounding stays below 1e-12. What cannot be equal is told apart.
"""

import copy
from functools import partial

import pytest
import torch
from process_cases import CASES, MEAN, MOMENTUM, OURS, PLATEAU, STEP, Branch, batches, equal, network
from torch import nn

import simgpu
from d2lmini.trainer.trainer import Trainer

SGD = torch.optim.SGD
PLACES = ["cpu", "sim"]
SUM = nn.CrossEntropyLoss(reduction="sum")
WEIGHTED = nn.CrossEntropyLoss(torch.tensor([0.5, 2.0, 1.0], dtype=torch.float64), reduction="sum")
PLAIN = {  # those that `by_hand` can do, and one whose examples count differently
    **{
        name: case
        for name, case in {**CASES, **OURS}.items()
        if case[0] is network and not {"amp", "schedule"} & set(case[3])
    },
    "class weights": (network, WEIGHTED, partial(SGD, lr=0.02), {}),
}
(X10, Y10), *_ = batches()
ON_SIM = ("mean", "adam, clipped", "accumulated over all", "halving-doubling")


@pytest.fixture(autouse=True)
def gpus():
    """Eight simulated GPUs, without a clock for speed."""
    simgpu.enable(8, clock=False)


def data():
    """Batches of 10, 10 and 5: 3 and 4 devices get uneven shards, and 8 devices have three idle in the last."""
    return batches(25)


def by_hand(model, loss, optimizer, data, epochs, clip=None, accumulate=1):
    """The loop everybody writes; what is accumulated is one large batch."""
    optimizer = optimizer(model.parameters())
    groups = [data[i : i + accumulate] for i in range(0, len(data), accumulate)]
    for _ in range(epochs):
        for group in groups:
            X, y = (torch.cat(parts) for parts in zip(*group, strict=True))
            optimizer.zero_grad()
            loss(model(X), y).backward()
            if clip:
                nn.utils.clip_grad_norm_(model.parameters(), clip)
            optimizer.step()
    return model


def places(kind, k):
    return ["cpu"] * k if kind == "cpu" else [f"sim:{i}" for i in range(k)]


def close(a, b, rtol=1e-9):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        torch.testing.assert_close(p.cpu(), q.cpu(), rtol=rtol, atol=1e-12)


@pytest.mark.parametrize("k", [1, 2, 3, 8])
@pytest.mark.parametrize(("name", "kind"), [*((name, "cpu") for name in PLAIN), *((name, "sim") for name in ON_SIM)])
def test_k_devices_give_the_parameters_of_one(name, k, kind):
    _, loss, optimizer, extra = PLAIN[name]
    trainer = Trainer(network(), loss, optimizer, places(kind, k), **extra)
    trainer.fit(data(), 2)
    theirs = {name: extra[name] for name in ("clip", "accumulate") if name in extra}
    alone = by_hand(network(), copy.deepcopy(loss).cpu(), optimizer, data(), 2, **theirs)
    close(trainer.replicas[0], alone)
    assert equal(*trainer.replicas, *([alone] if k == 1 and "accumulate" not in extra else []))


class Sharing(nn.Module):
    """A network with one weight used twice, and a buffer."""

    def __init__(self):
        super().__init__()
        self.encode, self.decode = (nn.Linear(6, 6, bias=False, dtype=torch.float64) for _ in range(2))
        self.decode.weight = self.encode.weight
        self.register_buffer("count", torch.zeros(()))

    def forward(self, X):
        self.count += 1
        return self.decode(torch.tanh(self.encode(X)))[:, :3]


@pytest.mark.parametrize("kind", PLACES)
def test_tied_parameters_stay_so_inside_a_replica_and_only_there(kind):
    torch.manual_seed(0)
    model = Sharing()
    alone = by_hand(copy.deepcopy(model), MEAN, partial(SGD, lr=0.5), data(), 1)
    trainer = Trainer(model, MEAN, partial(SGD, lr=0.5), places(kind, 3))
    trainer.fit(data(), 1)
    for replica in trainer.replicas:
        assert replica.decode.weight is replica.encode.weight
        assert replica.count.item() == 3
        close(replica, alone)
    if kind == "cpu":
        pointers = [t.data_ptr() for r in trainer.replicas for t in (*r.parameters(), *r.buffers())]
        assert len(set(pointers)) == len(pointers) == 3 * 2


def test_a_batch_that_waits_for_its_update_is_not_carried_into_another_run():
    trainers = [Trainer(network(), MEAN, partial(SGD, lr=0.5), ["cpu"] * 2, accumulate=2) for _ in range(2)]
    trainers[0].step(*data()[1])
    for trainer in trainers:
        trainer.fit(data(), 1)
    assert equal(trainers[0].replicas[0], trainers[1].replicas[0])


@pytest.mark.parametrize(
    ("schedule", "epochs", "rate"),
    [
        (STEP, 2, 0.5**2),
        (PLATEAU, 3, 0.1**2),  # a loss that falls by less than 10 an epoch stands still
    ],
    ids=["step", "plateau"],
)
def test_a_schedule_moves_all_learning_rates_alike_once_an_epoch(schedule, epochs, rate):
    trainer = Trainer(network(), MEAN, partial(SGD, lr=1.0), ["cpu"] * 2, schedule=schedule, accumulate=2)
    trainer.fit(data(), epochs)  # three batches, so two updates an epoch
    assert [o.param_groups[0]["lr"] for o in trainer.optimizers] == pytest.approx([rate] * 2)


@pytest.mark.parametrize("kind", PLACES)
@pytest.mark.parametrize("amp", [torch.bfloat16, torch.float16], ids=str)
def test_mixed_precision_is_autocasts_and_stays_near(kind, amp):
    seen = set()
    model, alone = network().float(), network().float()
    model[2].register_forward_hook(lambda module, args, out: seen.add(out.dtype))
    batches = [(X.float(), y) for X, y in data()]
    trainer = Trainer(model, MEAN, partial(SGD, lr=0.2), places(kind, 2), amp=amp, clip=1.0)
    losses = trainer.fit(batches, 3).loss
    exact = Trainer(alone, MEAN, partial(SGD, lr=0.2), ["cpu"], clip=1.0).fit(batches, 3).loss
    assert seen == {amp}
    assert losses == pytest.approx(exact, rel=0.02)
    assert losses != exact
    assert next(model.parameters()).dtype == torch.float32
    assert [s.is_enabled() for s in trainer.engine.scalers] == [amp is torch.float16] * 2
    assert equal(*trainer.replicas)


def test_a_scale_that_overflows_skips_the_step_everywhere_and_is_halved():
    batches = [(X.float(), y) for X, y in data()][:1]
    trainer = Trainer(network().float(), SUM, partial(SGD, lr=0.1), ["cpu"] * 2, amp=torch.float16)
    for scaler in trainer.engine.scalers:
        scaler._init_scale = 2.0**40
    before = copy.deepcopy(trainer.replicas[0])
    trainer.step(*batches[0])
    assert equal(before, trainer.replicas[0])
    assert equal(*trainer.replicas)
    assert [s.get_scale() for s in trainer.engine.scalers] == [2.0**39] * 2


@pytest.mark.parametrize(("kind", "k"), [("cpu", 1), ("cpu", 8), ("sim", 3)])
def test_evaluation_counts_every_example_once(k, kind):
    class Keeps(nn.Module):
        """Gives the label that the input carries, and has a parameter, as trainers want one."""

        def __init__(self):
            super().__init__()
            self.p = nn.Parameter(torch.zeros(1))
            self.seen = []

        def forward(self, X):
            assert X.device == self.p.device
            assert not self.training
            self.seen.append(len(X))
            return X

    right = torch.arange(45) % 4 != 0  # 33 of 45
    X = torch.eye(3)[torch.arange(45) % 3]
    y = torch.where(right, torch.arange(45) % 3, (torch.arange(45) + 1) % 3)
    trainer = Trainer(Keeps(), MEAN, partial(SGD, lr=0.1), places(kind, k))
    assert trainer.evaluate(list(zip(X.split(10), y.split(10), strict=True))) == 33 / 45
    shares = [r.seen for r in trainer.replicas]
    assert [len(s) for s in shares] == [len(range(i, 5, k)) for i in range(k)]
    assert sum(map(sum, shares)) == 45


def test_evaluation_does_not_depend_on_the_number_of_devices_with_running_statistics():
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Linear(16, 3)).double()
    trainer = Trainer(model, MEAN, partial(SGD, lr=0.5), ["cpu"] * 2)
    trainer.fit(data(), 2)
    assert not torch.equal(model[1].running_mean, trainer.replicas[1][1].running_mean)
    alone = Trainer(copy.deepcopy(trainer.replicas[0]), MEAN, partial(SGD, lr=0.5), ["cpu"])
    assert trainer.evaluate(data()) == alone.evaluate(data())


def test_the_model_itself_is_trained_but_for_parameters_out_of_use_or_frozen():
    model = Branch()
    model.sometimes.requires_grad_(False)
    before = copy.deepcopy(model)
    trainer = Trainer(model, MEAN, MOMENTUM, ["cpu"] * 2)
    trainer.fit(data(), 1)
    assert trainer.replicas[0] is model
    changed = [name for name, p in model.named_parameters() if not torch.equal(p, before.get_parameter(name))]
    assert changed == ["main.weight", "main.bias"]


def test_dropout_is_on_in_training_and_off_in_evaluation():
    trainer = Trainer(nn.Sequential(nn.Dropout(0.5), network()), MEAN, MOMENTUM, ["cpu"])
    assert trainer.evaluate(data()) == trainer.evaluate(data())
    assert not trainer.replicas[0].training
    trainer.step(*data()[0])
    assert trainer.replicas[0].training


def test_history_and_callback():
    seen, trainer = [], Trainer(network(), MEAN, MOMENTUM, ["cpu"])
    history = trainer.fit(data(), 3, batches(30), on_epoch=lambda epoch, h: seen.append((epoch, h.accuracy[-1])))
    assert seen == list(enumerate(history.accuracy, start=1))
    assert len(history.loss) == len(history.seconds) == len(history.accuracy) == 3
    assert history.accuracy[-1] == trainer.evaluate(batches(30))
    assert Trainer(network(), MEAN, MOMENTUM, ["cpu"]).fit(data(), 1).accuracy == []


@pytest.mark.slow
def test_a_model_may_come_compiled():
    losses = []
    for how in (lambda model: model, partial(torch.compile, backend="aot_eager", dynamic=False)):
        losses.append(Trainer(how(network()), MEAN, MOMENTUM, ["cpu"] * 2, accumulate=2).fit(batches(20), 2).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)


def sparse():
    words = nn.Sequential(nn.Embedding(4, 3, sparse=True), nn.Flatten(), nn.Linear(6, 3))
    Trainer(words, MEAN, MOMENTUM, ["cpu"] * 2).step(torch.zeros(4, 2).long(), torch.zeros(4).long())


def trainer(model=network, loss=MEAN, devices=("cpu", "cpu"), **options):
    return Trainer(model(), loss, MOMENTUM, list(devices), **options)


@pytest.mark.parametrize(
    ("words", "action"),
    [
        ("clip: ", lambda: trainer(clip=0)),
        ("accumulate: ", lambda: trainer(accumulate=0)),
        ("amp: ", lambda: trainer(amp=torch.float64)),
        ("allreduce: ", lambda: trainer(allreduce="rign")),
        ("overlap: ", lambda: trainer(overlap="yes")),
        ("sparse", sparse),
        ("none", lambda: trainer(loss=nn.CrossEntropyLoss(reduction="none"))),
        ("weighted", lambda: trainer(loss=nn.CrossEntropyLoss(WEIGHTED.weight.cpu()))),
        ("device", lambda: trainer(devices=[])),
        ("parameter", lambda: trainer(nn.Flatten)),
        ("at least one batch", lambda: trainer().fit([], 1)),
        ("7 labels", lambda: trainer().step(X10, Y10[:7])),
        ("0 examples", lambda: trainer().step(X10[:0], Y10[:0])),
        ("at least one example", lambda: trainer().evaluate([])),
        *(("epochs", lambda epochs=epochs: trainer().fit(data(), epochs)) for epochs in (0, -1, 1.5)),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(words, action):
    with pytest.raises(ValueError, match=words) as caught:
        action()
    assert "\n" not in str(caught.value)
    trainer(loss=nn.CrossEntropyLoss(WEIGHTED.weight.cpu()), devices=["cpu"])  # weighted, on one device alone
