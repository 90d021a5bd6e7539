"""How to train: the arguments of `Trainer`, and every rule about them, which the command line has too."""

from dataclasses import dataclass

import torch

from d2lmini.collectives.schedules import ALLREDUCE

ENGINES = ("replicas", "allreduce", "ddp")


@dataclass(frozen=True)
class Settings:
    """How to train: the named arguments of `Trainer`, which explains them."""

    allreduce: object = None
    buckets: int = 25 * 2**20  # as in torch's DistributedDataParallel
    schedule: object = None
    accumulate: int = 1
    clip: float | None = None
    amp: torch.dtype | None = None
    overlap: bool = False
    engine: str = "replicas"


def broken(s):
    """Return (argument, what is wrong) of the first rule that settings break, or None."""
    ddp, named = s.engine == "ddp", not callable(s.allreduce)
    rules = [
        ("engine", s.engine not in ENGINES, f"expected one of {', '.join(ENGINES)}, got {s.engine!r}"),
        ("accumulate", not isinstance(s.accumulate, int) or s.accumulate < 1,
         f"expected a number of batches of at least 1, got {s.accumulate!r}"),
        ("clip", s.clip is not None and not s.clip > 0, f"expected a norm greater than 0, or None, got {s.clip!r}"),
        ("amp", s.amp not in (None, torch.bfloat16, torch.float16),
         f"expected torch.bfloat16, torch.float16 or None, got {s.amp!r}"),
        ("allreduce", ddp and s.allreduce is not None,
         f"ddp sums gradients in its own way, not by {s.allreduce!r}: choose the engine allreduce"),
        ("allreduce", named and s.allreduce not in (None, *ALLREDUCE),
         f"expected one of {', '.join(ALLREDUCE)}, or a function, got {s.allreduce!r}"),
        ("overlap", s.overlap not in (True, False), f"expected True or False, got {s.overlap!r}"),
        ("overlap", s.overlap and s.engine != "replicas",
         "ddp overlaps in any case, and allreduce never: it is for the engine replicas"),
    ]  # fmt: skip
    return next(((argument, why) for argument, wrong, why in rules if wrong), None)


def check(settings):
    """Raise ValueError, in one line, for settings that make no sense."""
    found = broken(settings)
    if found:
        raise ValueError(": ".join(found))


def check_loss(loss, exact):
    """Raise ValueError for a loss that cannot be taken over shards; `exact`: it always sees a whole batch."""
    reduction = getattr(loss, "reduction", "mean")
    if reduction not in ("mean", "sum"):
        raise ValueError(f'the loss must be a mean or a sum over its batch, got reduction="{reduction}"')
    if reduction == "mean" and getattr(loss, "weight", None) is not None and not exact:
        raise ValueError('the mean of a weighted loss depends on the labels of its shard: give it reduction="sum"')
