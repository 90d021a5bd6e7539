"""What a trainer does with its model, its history and bad input; its steps are compared in `test_replicas`."""

from functools import partial

import pytest
import torch
from torch import nn

from d2lmini.models.lenet import LeNet
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)


def data(n=21, batch=8, seed=0):
    """Batches of 8, 8 and 5 examples, the last one short and odd; float64, so that only mistakes make a difference."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (n,), generator=generator)
    return list(zip(X.split(batch), y.split(batch), strict=True))


def test_the_model_itself_is_trained_but_for_parameters_out_of_use_or_frozen():
    model = LeNet().double()
    model.spare = nn.Linear(2, 2)  # takes no part in forward
    model.net[0].weight.requires_grad_(False)
    before = model.spare.weight.clone(), model.net[0].weight.clone()
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD, ["cpu"] * 2)
    trainer.fit(data(), 1)
    assert trainer.replicas[0] is model
    assert torch.equal(before[0], model.spare.weight)
    assert torch.equal(before[1], model.net[0].weight)


def test_dropout_is_on_in_training_and_off_in_evaluation():
    model = nn.Sequential(nn.Flatten(), nn.Dropout(0.5), nn.Linear(784, 10)).double()
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD, ["cpu"])
    assert trainer.evaluate(data()) == trainer.evaluate(data())
    assert not trainer.replicas[0].training
    trainer.step(*data()[0])
    assert trainer.replicas[0].training


def test_history_and_callback():
    seen = []
    trainer = Trainer(LeNet().double(), nn.CrossEntropyLoss(), SGD, ["cpu"])
    history = trainer.fit(data(), 3, data(seed=1), on_epoch=lambda epoch, h: seen.append((epoch, h.accuracy[-1])))
    assert seen == list(enumerate(history.accuracy, start=1))
    assert len(history.loss) == len(history.seconds) == len(history.accuracy) == 3
    assert history.accuracy[-1] == trainer.evaluate(data(seed=1))
    assert Trainer(LeNet().double(), nn.CrossEntropyLoss(), SGD, ["cpu"]).fit(data(), 1).accuracy == []


def test_bad_input_gets_one_line():
    loss, (X, y) = nn.CrossEntropyLoss(), data()[0]
    trainer = Trainer(LeNet().double(), loss, SGD, ["cpu"])
    for words, action in (
        ("device", lambda: Trainer(LeNet().double(), loss, SGD, [])),
        ("parameter", lambda: Trainer(nn.Flatten(), loss, SGD)),
        ("at least one batch", lambda: trainer.fit([], 1)),
        ("7 labels", lambda: trainer.step(X, y[:7])),
        ("0 examples", lambda: trainer.step(X[:0], y[:0])),
        *(("epochs", lambda epochs=epochs: trainer.fit(data(), epochs)) for epochs in (0, -1, 1.5)),
    ):
        with pytest.raises(ValueError, match=words):
            action()


@pytest.mark.slow
def test_a_model_may_come_compiled():
    losses = []
    for how in (lambda model: model, partial(torch.compile, backend="aot_eager", dynamic=False)):
        torch.manual_seed(0)
        model = how(nn.Sequential(nn.Flatten(), nn.Linear(784, 10)).double())
        losses.append(Trainer(model, nn.CrossEntropyLoss(), SGD, ["cpu"] * 2, accumulate=2).fit(data(16), 2).loss)
    assert losses[0] == pytest.approx(losses[1], rel=1e-9)
