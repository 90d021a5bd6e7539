"""How to train: the arguments of `Trainer`, and every rule about them, which the command line has too."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from d2lmini.collectives.schedules import ALLREDUCE
from d2lmini.data_parallel.sync_batch_norm import is_synchronised

ENGINES = ("replicas", "allreduce", "ddp")


@dataclass(frozen=True)
class Settings:
    """How to train: the named arguments of `Trainer`, which explains them."""

    allreduce: str | Callable | None = None
    buckets: int = 25 * 2**20  # as in torch's DistributedDataParallel
    schedule: Callable | None = None
    accumulate: int = 1
    clip: float | None = None
    amp: torch.dtype | None = None
    overlap: bool = False
    engine: str = "replicas"


def check(
    settings,
    *,
    devices=None,
    backend=None,
    ranks=1,
    model=None,
    loss=None,
    epochs=1,
    checkpoint=None,
    resume=False,
    torchrun=False,
    kind=None,
    count=None,
):
    """Raise ValueError for the first rule that is broken: the argument's name, and what is wrong with it.

    `Trainer` calls it with what it is given, the command line with its options; each tells what it knows.

    Args:
        settings: The `Settings`.
        devices: Those of this process.
        backend: What carries tensors between ranks, "simccl" for simulated ones; None for a process alone.
        ranks: How many processes or simulated ranks there are.
        model, loss, epochs, checkpoint, resume: As `Trainer` and `Trainer.fit` take them.
        torchrun: Whether it started the command line.
        kind, count: What the command line's ``--kind`` and ``--devices`` say.
    """
    several, here = settings.engine != "replicas", [str(device) for device in devices or ()]
    alone = (ranks if several else len(here)) == 1
    rules = [
        *_of_engine(settings, several, backend, torchrun, kind),
        ("devices", torchrun and count, "under torchrun a process has one device; choose --nproc-per-node"),
        ("devices", devices is not None and not here, "expected at least one, got none"),
        ("devices", several and len(here) > 1, f"a process has one when each has a replica, got {', '.join(here)}"),
        *_of_steps(settings, several),
        (
            "model",
            model is not None and several and not alone and is_synchronised(model),
            "SyncBatchNorm serves the replicas of one process: over several take torch.nn's",
        ),
        *_of_loss(loss, alone and settings.accumulate == 1),
        ("epochs", not isinstance(epochs, int) or epochs < 1, f"expected an integer of at least 1, got {epochs!r}"),
        ("resume", resume and checkpoint is None, "needs the name of a file: checkpoint=…"),
    ]
    for argument, wrong, why in rules:
        if wrong:
            raise ValueError(f"{argument}: {why}")


def _of_engine(settings, several, backend, torchrun, kind):
    """Return rules (argument, whether it is broken, what is wrong) about where the replicas are."""
    engine = settings.engine
    return [
        ("engine", engine not in ENGINES, f"expected one of {', '.join(ENGINES)}, got {engine!r}"),
        ("engine", torchrun and not several, "replicas are all in one process: leave out torchrun"),
        (
            "engine",
            several and not backend,
            f"{engine} has a replica in each process: start them with torchrun "
            "--nproc-per-node=2 …, or with distributed.run; or choose ddp on simulated ranks: --kind sim, simgpu.spawn",
        ),
        (
            "engine",
            engine == "allreduce" and backend == "simccl",
            "allreduce sends messages between processes: on "
            "simulated ranks choose ddp, and simgpu.spawn(…, allreduce=…) for its schedule",
        ),
        ("kind", torchrun and kind == "sim", "simulated GPUs live in one process: leave out torchrun"),
        ("kind", engine == "allreduce" and kind == "real", "allreduce exchanges tensors of the CPU: choose cpu or ddp"),
    ]


def _of_steps(settings, several):
    """Return rules about a step: what makes an update, and how gradients are summed."""
    accumulate, clip, amp, ours = settings.accumulate, settings.clip, settings.amp, settings.allreduce
    return [
        ("accumulate", not isinstance(accumulate, int) or accumulate < 1, f"expected 1 or more, got {accumulate!r}"),
        ("clip", clip is not None and not clip > 0, f"expected a norm above 0, or None, got {clip!r}"),
        ("amp", amp not in (None, torch.bfloat16, torch.float16), f"expected bfloat16, float16 or None, got {amp!r}"),
        (
            "allreduce",
            settings.engine == "ddp" and ours is not None,
            f"ddp sums gradients in its own way, not by {ours!r}: choose the engine allreduce",
        ),
        (
            "allreduce",
            not callable(ours) and ours not in (None, *ALLREDUCE),
            f"expected one of {', '.join(ALLREDUCE)}, or a function, got {ours!r}",
        ),
        ("overlap", settings.overlap not in (True, False), f"expected True or False, got {settings.overlap!r}"),
        ("overlap", settings.overlap and several, "ddp always does, allreduce never: it is for the engine replicas"),
    ]


def _of_loss(loss, whole):
    """Return rules about the loss; whole: whether each update has the examples of one undivided batch."""
    mean, weighted = getattr(loss, "reduction", "mean"), getattr(loss, "weight", None) is not None
    return [
        ("loss", mean not in ("mean", "sum"), f'expected a mean or a sum over its batch, got reduction="{mean}"'),
        (
            "loss",
            mean == "mean" and weighted and not whole,
            'the mean of a weighted one depends on the labels of its shard: give it reduction="sum"',
        ),
    ]
