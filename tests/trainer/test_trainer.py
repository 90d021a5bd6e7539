"""The trainer against a hand-written torch loop, for one and several replicas, even and uneven shards."""

from functools import partial

import pytest
import torch
from torch import nn

from d2lmini.models.lenet import LeNet
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9, weight_decay=1e-3)
ADAM = partial(torch.optim.Adam, lr=1e-3)


def data(n=21, batch=8, seed=0):
    """Batches of 8, 8 and 5 examples, the last one short and odd; float64, so that only mistakes make a difference."""
    generator = torch.Generator().manual_seed(seed)
    X = torch.rand(n, 1, 28, 28, generator=generator, dtype=torch.float64)
    y = torch.randint(10, (n,), generator=generator)
    return list(zip(X.split(batch), y.split(batch), strict=True))


def by_hand(model, loss, optimizer, batches, epochs):
    """The loop everybody writes, on one device; returns the mean loss of each epoch."""
    optimizer, means = optimizer(model.parameters()), []
    sums = loss.reduction == "sum"
    for _ in range(epochs):
        total = 0.0
        for X, y in batches:
            optimizer.zero_grad()
            value = loss(model(X), y)
            value.backward()
            optimizer.step()
            total += value.item() * (1 if sums else len(X))
        means.append(total / sum(len(X) for X, _ in batches))
    return means


@pytest.mark.parametrize("k", [1, 2, 3, 4])
@pytest.mark.parametrize("optimizer", [SGD, ADAM], ids=["sgd", "adam"])
@pytest.mark.parametrize("reduction", ["mean", "sum"])
def test_k_devices_give_the_parameters_of_one(k, optimizer, reduction):
    if reduction == "sum" and optimizer is SGD:
        optimizer = partial(torch.optim.SGD, lr=0.01)
    loss, batches = nn.CrossEntropyLoss(reduction=reduction), data()
    ours, theirs = LeNet().double(), LeNet().double()
    history = Trainer(ours, loss, optimizer, ["cpu"] * k).fit(batches, 2)
    means = by_hand(theirs, loss, optimizer, batches, 2)
    assert history.loss == pytest.approx(means, rel=1e-9)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)


def test_one_device_is_the_loop_bit_for_bit():
    ours, theirs = LeNet().double(), LeNet().double()
    Trainer(ours, nn.CrossEntropyLoss(), SGD, ["cpu"]).fit(data(), 2)
    by_hand(theirs, nn.CrossEntropyLoss(), SGD, data(), 2)
    assert all(torch.equal(p, q) for p, q in zip(ours.parameters(), theirs.parameters(), strict=True))


def test_replicas_stay_equal_to_the_last_bit_and_share_nothing():
    trainer = Trainer(LeNet().double(), nn.CrossEntropyLoss(), SGD, ["cpu"] * 3)
    trainer.fit(data(), 1)
    for params in zip(*(r.parameters() for r in trainer.replicas), strict=True):
        assert len({p.data_ptr() for p in params}) == 3
        assert all(torch.equal(params[0], p) for p in params)


@pytest.mark.parametrize("n", [1, 2])
def test_a_batch_smaller_than_the_number_of_devices(n):
    batches = data(n, n)
    ours, theirs = LeNet().double(), LeNet().double()
    trainer = Trainer(ours, nn.CrossEntropyLoss(), SGD, ["cpu"] * 3)
    trainer.fit(batches, 2)
    by_hand(theirs, nn.CrossEntropyLoss(), SGD, batches, 2)
    for p, q in zip(ours.parameters(), theirs.parameters(), strict=True):
        torch.testing.assert_close(p, q, rtol=1e-9, atol=1e-12)
    assert all(torch.equal(p, q) for p, q in zip(trainer.replicas[0].parameters(), trainer.replicas[2].parameters()))


def test_the_model_itself_is_trained():
    model = LeNet().double()
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD, ["cpu"] * 2)
    assert trainer.replicas[0] is model
    assert trainer.replicas[1] is not model
    trainer.step(*data()[0])
    assert not any(torch.equal(p, q) for p, q in zip(model.parameters(), LeNet().double().parameters(), strict=True))


def test_parameters_out_of_use_or_frozen_are_left_alone():
    model = LeNet().double()
    model.spare = nn.Linear(2, 2)  # takes no part in forward
    model.net[0].weight.requires_grad_(False)
    before = model.spare.weight.clone(), model.net[0].weight.clone()
    Trainer(model, nn.CrossEntropyLoss(), SGD, ["cpu"] * 2).fit(data(), 1)
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
    loss = nn.CrossEntropyLoss()
    with pytest.raises(ValueError, match="at least one device, got none"):
        Trainer(LeNet().double(), loss, SGD, [])
    with pytest.raises(ValueError, match="parameters to train"):
        Trainer(nn.Flatten(), loss, SGD)
    trainer = Trainer(LeNet().double(), loss, SGD, ["cpu"])
    for epochs in (0, -1, 1.5):
        with pytest.raises(ValueError, match="number of epochs must be an integer of at least 1"):
            trainer.fit(data(), epochs)
    with pytest.raises(ValueError, match="at least one batch an epoch"):
        trainer.fit([], 1)
    X, y = data()[0]
    with pytest.raises(ValueError, match="got 8 examples, 7 labels"):
        trainer.step(X, y[:7])
    with pytest.raises(ValueError, match="got 0 examples, 0 labels"):
        trainer.step(X[:0], y[:0])
