"""Data that lie on the device: the host's batches in the host's order, made without the host waiting; resumed too."""

from functools import partial

import pytest
import torch
from process_cases import Stopped, Stopping
from torch import nn

from d2lmini import sim
from d2lmini.data.datasets import Batches
from d2lmini.trainer import cli
from d2lmini.trainer.trainer import Trainer

MEAN = nn.CrossEntropyLoss()
ADAM = partial(torch.optim.Adam, lr=0.01)


def batches(n=23, size=5, device=None, **options):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (n, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return Batches(images, torch.arange(n) % 3, size, **options).to(device or "cpu")


def test_an_epoch_copies_one_order_and_never_waits():
    sim.enable(1)
    there = batches(640, 8, "sim:0", shuffle=True)
    list(there)
    with sim.trace() as trace:
        for _ in there:
            pass
    (copy,) = (span for span in trace.spans if span.kind == "copy")
    (wait,) = (span for span in trace.spans if span.kind == "wait")
    assert copy.nbytes == 640 * 8  # the order, int64, before the first batch
    assert wait.end == copy.end
    assert sum(span.kind == "operation" for span in trace.spans) > 3 * len(there)


def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Flatten(), nn.Linear(16, 8), nn.Dropout(0.3), nn.Linear(8, 3))


@pytest.mark.parametrize("devices", [["sim:0"], ["sim:0", "sim:1"]])
def test_training_on_resident_data_is_training_on_the_hosts(devices):
    sim.enable(2)
    runs = []
    for device in (None, "sim:0"):
        trainer = Trainer(network(), MEAN, ADAM, devices)
        torch.sim.manual_seed_all(0)
        runs.append((trainer.fit(batches(device=device, shuffle=True), 2).loss, trainer))
    assert runs[0][0] == runs[1][0]
    for p, q in zip(*(t.replicas[0].parameters() for _, t in runs), strict=True):
        assert torch.equal(p, q)


@pytest.mark.parametrize("first", ["sim:0", "cpu"])
def test_stopped_in_an_epoch_and_resumed_is_never_stopped(tmp_path, first):
    """The data may even lie elsewhere before the stop: the order is the same."""
    sim.enable(2)

    def trainer():
        made = Trainer(network(), MEAN, ADAM, ["sim:0", "sim:1"])
        torch.sim.manual_seed_all(0)
        return made

    whole, cut, resumed = trainer(), trainer(), None
    whole.fit(batches(device="sim:0", shuffle=True), 3)
    torch.sim.manual_seed_all(0)
    with pytest.raises(Stopped):  # in its second epoch
        cut.fit(Stopping(batches(device=first, shuffle=True), 5 + 2), 3, checkpoint=tmp_path / "c.pt")
    torch.sim.manual_seed_all(99)
    resumed = trainer()
    resumed.fit(batches(device="sim:0", shuffle=True), 3, checkpoint=tmp_path / "c.pt", resume=True)
    assert resumed.history.loss == whole.history.loss
    for p, q in zip(whole.replicas[0].parameters(), resumed.replicas[0].parameters(), strict=True):
        assert torch.equal(p, q)


def test_the_command_line_puts_the_data_on_the_first_device(capsys):
    lines = []
    for words in ([], ["--resident"]):
        assert cli.main(["--kind", "sim", "--model", "softmax", "--epochs", "1", "--batch-size", "250", *words]) == 0
        lines.append(capsys.readouterr().out.splitlines()[2].split())
    assert lines[0][:3] == lines[1][:3]  # loss and accuracy
    assert float(lines[1][3]) < float(lines[0][3])  # simulated seconds: no copies from the host
