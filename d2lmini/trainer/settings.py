"""How to train, checked before anything is copied or moved: every mistake is one line."""

import inspect
from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Settings:
    """How to train: the arguments of `Trainer` that say so, checked. See there."""

    schedule: object = None
    schedule_every: str = "epoch"
    accumulate: int = 1
    clip: float | None = None
    amp: torch.dtype | None = None
    compile: str | None = None
    overlap: bool = False

    def __post_init__(self):
        """Raise ValueError for what makes no sense, in one line."""
        if self.schedule_every not in ("epoch", "update"):
            raise ValueError(f'schedule_every: expected "epoch" or "update", got {self.schedule_every!r}')
        if not isinstance(self.accumulate, int) or self.accumulate < 1:
            raise ValueError(f"accumulate: expected a number of batches of at least 1, got {self.accumulate!r}")
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"clip: expected a norm greater than 0, or None, got {self.clip!r}")
        if self.amp not in (None, torch.bfloat16, torch.float16):
            raise ValueError(f"amp: expected torch.bfloat16, torch.float16 or None, got {self.amp!r}")
        if self.overlap not in (True, False):
            raise ValueError(f"overlap: expected True or False, got {self.overlap!r}")
        if self.overlap and self.compile is not None:
            raise ValueError(f"compile={self.compile} with overlap: compiled code gives all gradients at the end of "
                             "backward, so that no all-reduce can run beside it: leave out one of the two")  # fmt: skip


def check_model(model, loss, exact):
    """Raise ValueError for a model or a loss that cannot be trained; `exact`: the loss always sees a whole batch."""
    if not any(p.requires_grad for p in model.parameters()):
        raise ValueError("expected a model with parameters to train, got one with none that requires a gradient")
    reduction = getattr(loss, "reduction", "mean")
    if reduction not in ("mean", "sum"):
        raise ValueError(f'the loss must be a mean or a sum over its batch, got reduction="{reduction}"')
    if reduction == "mean" and getattr(loss, "weight", None) is not None and not exact:
        raise ValueError('the mean of a weighted loss depends on the labels of its shard: give it reduction="sum"')


def check_optimizer(optimizer):
    """Raise ValueError for an optimiser that wants to compute the loss itself."""
    closure = inspect.signature(type(optimizer).step).parameters.get("closure")
    if closure is not None and closure.default is inspect.Parameter.empty:
        name = type(optimizer).__name__
        raise ValueError(f"{name} computes the loss several times a step, and the trainer once: choose another")
