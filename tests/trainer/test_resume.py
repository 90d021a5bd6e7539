"""Stopped anywhere and resumed: the same parameters, bit for bit; on other devices, the same up to rounding.

An epoch has seven batches; what was learnt in one that was stopped is learnt again.
"""

import random
from functools import partial

import numpy as np
import pytest
import torch
from process_cases import InDouble, Stopped, Stopping, state
from process_cases import equal as equal_models
from torch import nn
from torch.utils.data import DataLoader

import simgpu
from d2lmini.distributed.errors import CheckpointError
from d2lmini.trainer import fingerprint, rng
from d2lmini.trainer.checkpoint import Checkpoint
from d2lmini.trainer.settings import Settings
from d2lmini.trainer.trainer import Trainer

ADAM = partial(torch.optim.Adam, lr=0.01)
MEAN = nn.CrossEntropyLoss()


def network(dropout=0.0, norm=False):
    torch.manual_seed(0)
    layers = [nn.Flatten(), nn.Linear(16, 8), *([nn.BatchNorm1d(8)] if norm else []), nn.Dropout(dropout)]
    return nn.Sequential(*layers, nn.Linear(8, 3)).double()


def batches(batch_size=5):
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (33, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return InDouble(images, torch.arange(33) % 3, batch_size, shuffle=True)


def equal(a, b):
    return equal_models(a.replicas[0], b.replicas[0])


def stopped(trainer, data, after, **options):
    """Train until the data stops the program; the trainer is then lost, as in a killed process."""
    with pytest.raises(Stopped):
        trainer.fit(Stopping(data, after), 3, **options)


def test_other_devices_go_on_where_the_first_were(tmp_path):
    simgpu.enable(3)
    file = tmp_path / "c.pt"
    whole = Trainer(network(), MEAN, ADAM, ["cpu"] * 2)
    history = whole.fit(batches(), 3)
    stopped(Trainer(network(), MEAN, ADAM, ["cpu"] * 2), batches(), 8, checkpoint=file)
    for devices in (["sim:0", "sim:1", "sim:2"], ["cpu"]):
        trainer = Trainer(network(), MEAN, ADAM, devices)
        again = tmp_path / "again.pt"
        again.write_bytes(file.read_bytes())
        resumed = trainer.fit(batches(), 3, checkpoint=again, resume=True)
        assert resumed.loss == pytest.approx(history.loss, rel=1e-9)
        torch.testing.assert_close(state(whole.replicas[0]), state(trainer.replicas[0]), rtol=1e-9, atol=1e-12)
        assert [next(r.parameters()).device for r in trainer.replicas] == [torch.device(d) for d in devices]
        assert equal_models(*trainer.replicas)
        again.unlink()


@pytest.mark.parametrize("kind", ["cpu", "sim"])
def test_replicas_that_differ_in_their_buffers_do_so_again(tmp_path, kind):
    simgpu.enable(2)
    devices, file = ["cpu", "cpu"] if kind == "cpu" else ["sim:0", "sim:1"], tmp_path / "c.pt"
    whole = Trainer(network(0.3, norm=True), MEAN, ADAM, devices)
    whole.fit(batches(11), 3)
    stopped(Trainer(network(0.3, norm=True), MEAN, ADAM, devices), batches(11), 4, checkpoint=file)
    torch.manual_seed(99)
    trainer = Trainer(network(0.3, norm=True), MEAN, ADAM, devices)
    trainer.fit(batches(11), 3, checkpoint=file, resume=True)
    assert equal(whole, trainer)
    means = [r[2].running_mean.cpu() for r in (*whole.replicas, *trainer.replicas)]
    assert torch.equal(means[1], means[3])
    assert not torch.equal(means[0], means[1])


def test_scaler_and_plateau_go_on_where_they_were(tmp_path):
    def trainer():
        plateau = partial(torch.optim.lr_scheduler.ReduceLROnPlateau, patience=0, threshold=0.5)
        return Trainer(network().float(), MEAN, ADAM, ["cpu"] * 2, amp=torch.float16, schedule=plateau)

    def data():
        return [(X.float(), y) for X, y in batches()]

    file, whole, cut = tmp_path / "c.pt", trainer(), trainer()
    for t in (whole, cut):
        t.engine.scalers[0]._growth_interval = t.engine.scalers[1]._growth_interval = 4
    whole.fit(data(), 3)
    stopped(cut, data(), 9, checkpoint=file)
    resumed = trainer()
    resumed.fit(Stopping(data(), 99), 3, checkpoint=file, resume=True)
    assert equal(whole, resumed)
    assert [s.get_scale() for s in resumed.engine.scalers] == [whole.engine.scalers[0].get_scale()] * 2
    assert whole.engine.scalers[0].get_scale() != 65536
    rates = {o.param_groups[0]["lr"] for t in (whole, resumed) for o in t.optimizers}
    assert len(rates) == 1
    assert rates != {0.01}


def test_a_finished_run_resumes_to_itself_and_can_be_lengthened(tmp_path):
    file = tmp_path / "c.pt"
    trainer = Trainer(network(), MEAN, ADAM, ["cpu"])
    assert not file.exists()
    first = trainer.fit(batches(), 2, batches(), checkpoint=file, resume=True)  # there is nothing yet
    again = Trainer(network(), MEAN, ADAM, ["cpu"])
    assert again.fit(batches(), 2, checkpoint=file, resume=True) == first
    assert equal(trainer, again)
    longer, whole = Trainer(network(), MEAN, ADAM, ["cpu"]), Trainer(network(), MEAN, ADAM, ["cpu"])
    assert longer.fit(batches(), 3, checkpoint=file, resume=True).loss == whole.fit(batches(), 3).loss
    assert equal(longer, whole)


@pytest.mark.parametrize("when", ["in on_epoch", "after fit"])
def test_what_was_saved_by_hand_goes_on_with_the_next_epoch(tmp_path, when):
    file, data = tmp_path / "c.pt", list(zip(torch.rand(33, 1, 4, 4, dtype=torch.float64), torch.arange(33) % 3))

    def shuffled():
        return DataLoader(data, 5, shuffle=True)  # its order is drawn from torch's random numbers

    def save(epoch, history):
        if epoch == 2:
            trainer.save(file)

    whole, trainer, resumed = (Trainer(network(dropout=0.5), MEAN, ADAM, ["cpu"]) for _ in range(3))
    torch.manual_seed(1)
    whole.fit(shuffled(), 4)
    torch.manual_seed(1)
    trainer.fit(shuffled(), 2, on_epoch=save if when == "in on_epoch" else None)
    if when == "after fit":
        trainer.save(file)
    torch.manual_seed(2)
    resumed.fit(shuffled(), 4, checkpoint=file, resume=True)
    assert equal(whole, resumed)


STEP = partial(torch.optim.lr_scheduler.StepLR, step_size=1)
COSINE = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=3)


def snapshot(trainer):
    optimizer = str(trainer.optimizers[0].state_dict())
    return [p.clone() for p in state(trainer.replicas[0])], trainer.history, optimizer, torch.get_rng_state().tolist()


def refused(trainer, file, words, action):
    """An action ends in one line that begins with the file's name, and leaves the trainer as it was."""
    tensors, *rest = snapshot(trainer)
    with pytest.raises(CheckpointError, match=words) as raised:
        action()
    assert str(raised.value).startswith(f"{file}: ")
    assert "\n" not in str(raised.value)
    after, *others = snapshot(trainer)
    assert all(map(torch.equal, tensors, after))
    assert others == rest


@pytest.fixture(scope="module")
def stopped_state(tmp_path_factory):
    """What a checkpoint of one epoch holds."""
    file = tmp_path_factory.mktemp("stopped") / "c.pt"
    stopped(Trainer(network(), MEAN, ADAM, ["cpu"], schedule=COSINE), batches(), 10, checkpoint=file)
    return Checkpoint(file).read()


@pytest.fixture
def stopped_file(tmp_path, stopped_state):
    Checkpoint(tmp_path / "c.pt").write(stopped_state)
    return tmp_path / "c.pt"


def frozen():
    model = network()
    model[1].weight.requires_grad_(False)
    return model


@pytest.mark.parametrize(
    ("words", "other"),
    [
        (
            "model.*8, 16",
            {"model": lambda: nn.Sequential(nn.Flatten(), nn.Linear(16, 9), nn.Dropout(0), nn.Linear(9, 3))},
        ),
        ("model", {"model": lambda: nn.Linear(2, 2)}),
        ("optimiser.*[4].*[3]", {"model": frozen}),
        ("optimiser.*Adam", {"optimizer": partial(torch.optim.SGD, lr=0.1)}),
        ("lr is 0.01", {"optimizer": partial(ADAM, lr=0.02)}),
        ("schedule", {"schedule": None}),
        ("schedule", {"schedule": STEP}),
        ("T_max is 3", {"schedule": partial(COSINE, T_max=4)}),
        ("accumulate", {"accumulate": 2}),
        ("clip", {"clip": 0.5}),
        ("amp", {"amp": torch.bfloat16}),
        ("loss", {"loss": nn.CrossEntropyLoss(label_smoothing=0.1)}),
        ("loss.*weight", {"loss": nn.CrossEntropyLoss(torch.ones(3).double())}),
        ("model.*p=0.*p=0.5", {"model": lambda: network(0.5)}),
    ],
)
def test_another_way_to_train_is_refused_and_changes_nothing(stopped_file, words, other):
    options = {"model": network, "loss": MEAN, "optimizer": ADAM, "schedule": COSINE, **other}
    trainer = Trainer(options.pop("model")(), options.pop("loss"), options.pop("optimizer"), ["cpu"], **options)
    refused(trainer, stopped_file, words, lambda: trainer.load(stopped_file))


def test_other_data_are_refused(tmp_path):
    file = tmp_path / "c.pt"
    stopped(Trainer(network(), MEAN, ADAM, ["cpu"]), batches(), 10, checkpoint=file)
    seeded, relabelled, redrawn = batches(), batches(), batches()
    seeded.seed, relabelled.labels, redrawn.images = 3, torch.zeros(33), 255 - redrawn.images
    for data, words in (
        (batches(6), "batch_size is 5"),
        (seeded, "seed is 0"),
        (relabelled, "labels"),
        (redrawn, "images"),
    ):
        with pytest.raises(CheckpointError, match=words):
            Trainer(network(), MEAN, ADAM, ["cpu"]).fit(data, 3, checkpoint=file, resume=True)


def test_other_images_and_arguments_of_a_loss_have_other_fingerprints():
    first, second = batches(), batches()
    second.images = second.images ^ 1
    assert fingerprint.of_data(first) == fingerprint.of_data(batches()) != fingerprint.of_data(second)

    def of(**arguments):
        loss = partial(nn.functional.cross_entropy, **arguments)
        return fingerprint.of_training(network(), loss, ADAM(network().parameters()), [], Settings())

    weights = (None, torch.ones(3), torch.arange(3.0))
    found = [of(label_smoothing=smoothing, weight=weight) for smoothing in (0.0, 0.1) for weight in weights]
    assert len({str(each) for each in found}) == len(found)


def changed(state, path, value):
    """Set what lies at a path of keys, or remove it for `...`; return the state."""
    *way, last = path
    inner = state
    for key in way:
        inner = inner[key]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return state


NAN, INFINITE = float("nan"), float("inf")
NOT_A_STATE = [
    ([], {"something": 1}),
    *(([key], value) for key in ("engine", "history", "rng", "data") for value in (..., 3, [], {"x": 1})),
    *(
        (["engine", key], value)
        for key in ("fingerprint", "model", "optimizer", "schedule", "ranks")
        for value in (..., 3)
    ),
    (["engine", "model", "1.weight"], torch.zeros(2)),
    (["engine", "model", "1.weight"], 3),
    (["engine", "ranks"], []),
    (["engine", "ranks", 0], 3),
    (["engine", "optimizer", "state", 0, "exp_avg"], torch.full((8, 16), torch.nan)),
    (["engine", "optimizer", "param_groups"], []),
    *((["engine", "optimizer", "param_groups", 0, "lr"], value) for value in ("fast", -1.0, NAN, INFINITE)),
    (["engine", "optimizer", "param_groups", 0, "betas"], (0.9, NAN)),
    (["engine", "model", "1.weight"], torch.full((8, 16), torch.inf).double()),
    (["engine", "schedule", "last_epoch"], -5),
    (["engine", "schedule", "base_lrs"], [NAN]),
    (["engine", "scaler"], {"scale": 1.0}),
    (["engine", "schedule", "T_max"], "x"),
    (["engine", "schedule", "eta_min"], {}),
    (["engine", "schedule", "base_lrs"], ["x"]),
    (["engine", "fingerprint", "model", "1.weight"], torch.zeros(3)),
    (["history", "loss", 0], torch.ones(1)),
    (["history", "loss"], [1.0, 2.0, 3.0]),
    (["history", "loss"], ["x"]),
    *((["history", "loss", 0], value) for value in (NAN, INFINITE)),
    (["history", "accuracy"], [1.5]),
    (["history", "accuracy"], [0.5, 0.5]),
    (["history", "seconds", 0], -1.0),
    (["history", "seconds"], None),
    (["history", "provenance"], 3),
    (["rng", "cpu"], torch.zeros(3)),
    (["rng", "python"], (3, (1, 2), None)),
    (["rng", "numpy"], ("MT19937", torch.zeros(3), 1, 0, 0.0)),
    (["data", "fingerprint"], 3),
    *((["data", "epoch"], value) for value in ("x", -5, 1.5)),
]


@pytest.mark.parametrize(("path", "value"), NOT_A_STATE, ids=str)
def test_whatever_else_a_whole_file_holds_is_refused_and_changes_nothing(stopped_file, path, value):
    state = changed(Checkpoint(stopped_file).read(), path, value) if path else value
    Checkpoint(stopped_file).write(state)
    trainer = Trainer(network(), MEAN, ADAM, ["cpu"], schedule=COSINE)
    refused(trainer, stopped_file, "checkpoint|saved", lambda: trainer.load(stopped_file))


def test_seconds_are_those_of_training_without_saving_and_without_the_break(tmp_path):
    def trainer():
        simgpu.enable(2)
        return Trainer(network(), MEAN, ADAM, ["sim:0", "sim:1"])

    file, plain = tmp_path / "c.pt", trainer().fit(batches(), 3).seconds
    stopped(trainer(), batches(), 10, checkpoint=file)
    resumed = trainer().fit(batches(), 3, checkpoint=file, resume=True).seconds
    assert resumed == pytest.approx(plain, rel=1e-3)


def test_arguments_that_make_no_sense():
    trainer = Trainer(network(), MEAN, ADAM, ["cpu"])
    with pytest.raises(ValueError, match="checkpoint="):
        trainer.fit(batches(), 1, resume=True)
    with pytest.raises(CheckpointError, match="no folder"):
        trainer.fit(batches(), 1, checkpoint="no/such/folder/c.pt")


def test_random_numbers_of_all_kinds_go_on_where_they_were():
    simgpu.enable(2)

    def draw():
        return [
            random.random(),
            np.random.rand(),
            np.random.randn(),
            torch.rand(2).tolist(),
            *(torch.rand(2, device=d).tolist() for d in ("sim:0", "sim:1")),
        ]

    draw()
    np.random.randn()  # the generator keeps a second normal number back
    state = rng.get_state(["sim:0", "sim:1", "cpu"])
    expected = draw()
    assert draw() != expected
    rng.set_state(state, ["sim:0", "sim:1", "cpu"])
    assert draw() == expected
    rng.set_state(state, ["sim:0"])
    assert draw()[:-1] == expected[:-1]
