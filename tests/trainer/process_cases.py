"""Ways to train that a test runs in one process with several replicas, and in as many processes with one each."""

import os
import signal
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau, StepLR

from d2lmini.data.datasets import Batches
from d2lmini.data_parallel.sync_batch_norm import SyncBatchNorm
from d2lmini.distributed.errors import CheckpointError, DivergedError
from d2lmini.trainer.trainer import Trainer

SGD, ADAM = torch.optim.SGD, torch.optim.Adam
MEAN, SUM = nn.CrossEntropyLoss(), nn.CrossEntropyLoss(reduction="sum")


def network(norm=False):
    torch.manual_seed(1)
    middle = [nn.BatchNorm1d(16)] if norm else []
    return nn.Sequential(nn.Linear(6, 16), *middle, nn.Tanh(), nn.Linear(16, 3)).double()


def frozen(model):
    model[0].requires_grad_(False)
    return model


def state(model):
    return [t.detach().cpu() for t in model.state_dict().values()]


def equal(*models):
    """Whether models have the same parameters and buffers, to the last bit."""
    return all(all(map(torch.equal, state(models[0]), state(model))) for model in models[1:])


class Branch(nn.Module):
    """Uses one layer only for shards with an even first label, and one never; keeps what it saw in a buffer."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(1)
        self.main, self.sometimes, self.never = (nn.Linear(6, 3).double() for _ in range(3))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, X):
        self.seen += len(X)
        return self.main(X) + (self.sometimes(X) if X[0, 0] > 0 else 0)


def batches(n=22, batch=10):
    """Batches of 10, 10 and 2 examples: 3 ranks get uneven shards, and the last of them has none at the end."""
    generator = torch.Generator().manual_seed(0)
    X, y = torch.randn(n, 6, generator=generator, dtype=torch.float64), torch.randint(3, (n,), generator=generator)
    return list(zip(X.split(batch), y.split(batch), strict=True))


MOMENTUM = partial(SGD, lr=0.2, momentum=0.9, weight_decay=0.1)
STEP = partial(StepLR, step_size=1, gamma=0.5)
PLATEAU = partial(ReduceLROnPlateau, patience=0, threshold=10.0, threshold_mode="abs")
CASES = {  # name -> model, loss, optimiser, other arguments of the trainer
    "mean": (network, MEAN, MOMENTUM, {}),
    "sum": (network, SUM, partial(SGD, lr=0.05), {}),
    "adam, clipped": (network, MEAN, partial(ADAM, lr=0.01), {"clip": 0.05}),
    "accumulated": (network, MEAN, MOMENTUM, {"accumulate": 2}),
    "accumulated over all": (network, SUM, partial(SGD, lr=0.05), {"accumulate": 5, "clip": 1.0}),
    "schedule": (network, MEAN, MOMENTUM, {"schedule": STEP, "accumulate": 2}),
    "plateau": (network, MEAN, MOMENTUM, {"schedule": PLATEAU}),
    "small buckets": (network, MEAN, MOMENTUM, {"buckets": 300}),
    "no buckets": (network, MEAN, MOMENTUM, {"buckets": 0}),
    "bfloat16": (lambda: network().float(), MEAN, MOMENTUM, {"amp": torch.bfloat16}),
    "float16": (lambda: network().float(), MEAN, MOMENTUM, {"amp": torch.float16, "clip": 1.0, "accumulate": 2}),
    "batch norm": (partial(network, norm=True), MEAN, MOMENTUM, {}),
    "frozen, clipped": (lambda: frozen(network()), MEAN, MOMENTUM, {"clip": 0.05}),
    "sync batch norm": (lambda: SyncBatchNorm.convert(network(norm=True)), MEAN, MOMENTUM, {"accumulate": 2}),
}
OURS = {  # only for the all-reduce of our own
    "tree": (network, MEAN, MOMENTUM, {"allreduce": "tree"}),
    "halving-doubling": (network, MEAN, MOMENTUM, {"allreduce": "halving-doubling", "buckets": 300}),
    "parameters that some leave out": (Branch, MEAN, MOMENTUM, {"accumulate": 2}),
}


OF_DDP = [
    "mean",
    "sum",
    "accumulated",
    "accumulated over all",
    "small buckets",
    "float16",
    "batch norm",
    "frozen, clipped",
]
OF_ONE = "sync batch norm"  # in processes it is torch's own


def train(name, devices, engine="replicas", epochs=2, **more):
    """Train as the case of that name says, with `more` arguments of the trainer, and return what came of it."""
    model, loss, optimizer, extra = {**CASES, **OURS}[name]
    extra = {**more, **extra}
    data = [(X.to(next(model().parameters()).dtype), y) for X, y in batches()]
    data = data[:2] if name == "batch norm" else data  # a layer cannot normalise over one example
    trainer = Trainer(model(), loss, optimizer, devices, engine=engine, **extra)
    history = trainer.fit(data, epochs, data)
    trainer.step(*data[-1])
    loss = float(trainer.step(*data[0]))
    groups = [{k: v for k, v in o.param_groups[0].items() if k != "params"} for o in trainer.optimizers]
    return {
        "loss": history.loss,
        "accuracy": history.accuracy,
        "step": loss,
        "groups": groups[0],
        "model": {name: p.detach() for name, p in trainer.replicas[0].named_parameters()},
        "buffers": [dict(r.named_buffers()) for r in trainer.replicas],
    }


def train_all(rank):
    """Train in every way that there is in processes, with DDP but for what differs for it; return the results."""
    names = {"allreduce": sorted({*CASES, *OURS} - {OF_ONE}), "ddp": OF_DDP}
    return {(engine, name): train(name, ["cpu"], engine) for engine in names for name in names[engine]}


def own_numbers(rank, seeds):
    """Return, for each seed, this rank's masks of dropout of two steps, and what all ranks must draw alike."""
    return [_own_numbers(rank, seed) for seed in seeds]


def _own_numbers(rank, seed):
    torch.manual_seed(seed + rank * (seed == 0))  # with seed 0 the ranks begin unlike, and rank 0's numbers win
    model, masks = nn.Sequential(nn.Dropout(0.5), nn.Linear(20, 3)).double(), []
    model[0].register_forward_hook(lambda module, args, out: masks.append((out != 0).tolist()))
    trainer = Trainer(model, MEAN, MOMENTUM, ["cpu"], engine="allreduce")
    for n in (2 * dist.get_world_size() + 1, 1):  # uneven shards, and a batch for one rank alone
        trainer.step(torch.ones(n, 20, dtype=torch.float64), torch.zeros(n).long())
    return masks, torch.rand(3).tolist(), model[1].weight.detach()


def train_saved(rank, engine, file=None, victims=(), moment=0):
    """Train with all that has a state, on from `file` if it is there, and return what came of it.

    The ranks in `victims` are killed before they learn from batch number `moment`, counted from 1 in this run.
    """
    trainer, data = saved_trainer(["cpu"], engine)
    if rank in victims:
        accumulate, left = trainer.engine.accumulate, [moment]

        def dying(X, y):
            left[0] -= 1
            if not left[0]:
                os.kill(os.getpid(), signal.SIGKILL)
            return accumulate(X, y)

        trainer.engine.accumulate = dying
    history = trainer.fit(data, 3, data, checkpoint=file, resume=bool(file))
    return [p.detach() for p in trainer.replicas[0].state_dict().values()], history.loss, history.accuracy


def saved_trainer(devices, engine, dropout=0.5):
    """A trainer and its eight shuffled batches, the last of one example."""
    torch.manual_seed(0)
    layers = nn.Linear(16, 8), nn.LayerNorm(8), nn.Dropout(dropout), nn.Linear(8, 3)
    model = nn.Sequential(nn.Flatten(), *layers).double()
    trainer = Trainer(
        model, MEAN, partial(ADAM, lr=0.05), devices, engine=engine, schedule=STEP, accumulate=2, clip=0.5
    )
    generator = torch.Generator().manual_seed(0)
    images = torch.randint(256, (37, 1, 4, 4), generator=generator, dtype=torch.uint8)
    return trainer, InDouble(images, torch.arange(37) % 3, batch_size=5, shuffle=True)


class Stopped(BaseException):
    """Stands in for Ctrl-C."""


class Stopping:
    """An iterator that stops the program after so many batches in all; every batch counts, in whatever epoch."""

    def __init__(self, batches, after):
        self.batches, self.left = batches, after

    def __getattr__(self, name):
        return getattr(self.batches, name)

    def __len__(self):
        return len(self.batches)

    def __iter__(self):
        for pair in self.batches:
            if not self.left:
                raise Stopped
            self.left -= 1
            yield pair


class InDouble(Batches):
    """Batches in float64."""

    def __iter__(self):
        return ((X.double(), y) for X, y in super().__iter__())


def go_on(rank, file, other):
    """Go on, without dropout, from a checkpoint of one process; return the parameters and how a bad file is refused."""
    trainer, data = saved_trainer(["cpu"], "allreduce", dropout=0.0)
    trainer.fit(data, 2, checkpoint=file, resume=True)
    try:
        trainer.load(other)
    except CheckpointError as error:
        return [p.detach() for p in trainer.replicas[0].state_dict().values()], str(error)


def error_of(function, kind=ValueError):
    """Return what the error says that a function raises."""
    try:
        function()
    except kind as error:
        return str(error)


def complaints(rank):
    """Return what trainers over processes say of a loss that is no number, of ranks that are unlike, of arguments."""
    return diverged(), unlike(rank), refused(), [other_batches(rank, how) for how in ("ends", "other", "longer")]


def diverged():
    """Return what is said where rank 1 alone meets a loss that is no number."""
    data = batches()
    data[1][0][5:] = torch.nan
    trainer = Trainer(network(), MEAN, MOMENTUM, ["cpu"], engine="allreduce")
    return error_of(lambda: trainer.fit(data * 3, 1), DivergedError)


class Cut(list):
    """Batches, of which an iterator gives the first `left`; as many as there are, to those that ask."""

    left = None

    def __iter__(self):
        return iter(self[: self.left])


def other_batches(rank, how):
    """Return what is said where rank 1's iterator ends early, or gives another batch, in both engines."""
    said = []
    for engine in ("allreduce", "ddp"):
        data = Cut(batches())
        if rank == 1:
            data.left = 2 if how == "ends" else None
            data[1] = (data[1][0] + 1, data[1][1]) if how == "other" else data[1]
            data[2] = data[1] if how == "longer" else data[2]
        trainer = Trainer(network(), MEAN, MOMENTUM, ["cpu"], engine=engine)
        said.append(error_of(lambda trainer=trainer, data=data: trainer.fit(data, 1)))
        evaluated = Cut(batches())
        evaluated.left = 1 + rank
        said.append(error_of(lambda trainer=trainer, evaluated=evaluated: trainer.evaluate(evaluated)))
    return said


def refused():
    """Return, for what a trainer over processes refuses, what it says."""
    ours = (
        {"devices": ["cpu", "cpu"]},
        {"engine": "ddp", "allreduce": "ring"},
        {"allreduce": "rign"},
        {"model": Branch(), "engine": "ddp"},
        {"overlap": True},
        {"model": SyncBatchNorm.convert(network(norm=True))},
    )
    made = [{"model": network(), "engine": "allreduce", "devices": ["cpu"], **arguments} for arguments in ours]
    return [error_of(lambda m=m: Trainer(m.pop("model"), MEAN, MOMENTUM, **m).step(*batches()[0])) for m in made]


def unlike(rank):
    """Return what is said where rank 1 has another model, or trains it in another way, or on other data."""

    def trainer(model=network, loss=MEAN, optimizer=MOMENTUM, **options):
        return Trainer(model(), loss, optimizer, ["cpu"], **{"engine": "allreduce", **options})

    def data(size=5, seed=0, labels=3):
        images = torch.zeros(20, 1, 2, 3, dtype=torch.uint8)
        return Batches(images, torch.arange(20) % labels, size, shuffle=True, seed=seed)

    made, other = trainer(), rank == 1
    ways = [
        lambda: trainer(partial(network, norm=other)),
        lambda: trainer(loss=SUM if other else MEAN),
        lambda: trainer(optimizer=partial(SGD, lr=0.1 + rank)),
        lambda: trainer(buckets=300 + rank),
        lambda: trainer(engine="ddp" if other else "allreduce"),
        lambda: trainer(clip=1.0 + rank),
        lambda: made.fit(data(5 + rank), 1),
        lambda: made.fit(data(seed=rank), 1),
        lambda: made.fit(data(labels=3 - rank), 1),
        lambda: made.fit(data(), 1 + rank),
    ]
    return [error_of(way) for way in ways]
