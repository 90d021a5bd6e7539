"""Training time by hidden units: the network is what it says, and every size is measured in a process of its own."""

import pytest
import torch

from d2lmini.measuring import hidden_units


@pytest.mark.parametrize("units", [1, 30])
def test_two_hidden_layers(units):
    net = hidden_units.two_hidden(units)
    assert net(torch.zeros(3, 784)).shape == (3, 10)
    assert sum(p.numel() for p in net.parameters()) == 785 * units + (units + 1) * units + (units + 1) * 10
    assert not isinstance(net[-1], torch.nn.ReLU)


def test_the_first_steps_do_not_count(monkeypatch):
    calls = []
    monkeypatch.setattr(hidden_units, "training_step", lambda *_: lambda: calls.append(None))
    assert len(hidden_units.steps_seconds(2, 1, steps=5, warmup=2)) == 5
    assert len(calls) == 7


@pytest.mark.process
def test_every_size_is_measured(monkeypatch):
    monkeypatch.setenv("MKL_CBWR", "COMPATIBLE")
    found, where = hidden_units.measured([4, 900], batch=8, steps=6)
    assert {len(m.seconds) for m in found.values()} == {6}
    assert found[4].seconds[0] < found[900].seconds[0]
    assert "1 CPU thread" in where
    assert "MKL_CBWR" not in where
