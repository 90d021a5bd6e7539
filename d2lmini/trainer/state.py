"""What a checkpoint holds: everything that decides the next step of a trainer, as plain values.

engine    the training's fingerprint, model, optimiser, schedule, scaler; for each rank its buffers and random numbers
data      the data's fingerprint, and the number of the next epoch where the iterator counts them
history, rng
"""

import copy
import math
from dataclasses import asdict

import torch
from torch.utils._pytree import tree_leaves, tree_map

from d2lmini.distributed.errors import CheckpointError
from d2lmini.trainer import fingerprint, rng
from d2lmini.trainer.history import History
from d2lmini.wording import first_line

ANY = -math.inf  # in an example: a number of any size


def get(replicas, history, data) -> dict:
    """Return the state of a trainer; a collective call."""
    return {
        "engine": _of(replicas),
        "history": asdict(history),
        "data": data,
        "rng": rng.get_state(replicas.comm.devices),
    }


def take(replicas, state, name: str) -> tuple[History, dict]:
    """Make the replicas what `get` described, and return its history and what it says of the data.

    A collective call. Where they can't go on from there, they are as they were.

    Raises:
        CheckpointError: with the `name` of the checkpoint, and why.
    """
    before, numbers = copy.deepcopy(_of(replicas)), rng.get_state(replicas.comm.devices)
    try:
        fingerprint.check(state["engine"]["fingerprint"], replicas.fingerprint, name)
        _check(state, before)
        _load(replicas, state["engine"])
        rng.set_state(state["rng"], replicas.comm.devices)
    except Exception as error:
        _load(replicas, before)
        rng.set_state(numbers, replicas.comm.devices)
        if isinstance(error, CheckpointError):
            raise
        what = f"is no checkpoint of a trainer ({type(error).__name__}: {first_line(error)})"
        raise CheckpointError(f"{name}: {what}") from error
    return History(**state["history"]), {**state["data"]}


def _check(state, ours):
    """Raise an error unless a run of the trainer whose engine is `ours` may have left a state."""
    engine, history, data = state["engine"], state["history"], state["data"]
    for part in ("model", "scaler"):
        _alike(engine[part], ours[part], part)
    _alike(engine["optimizer"]["param_groups"], ours["optimizer"]["param_groups"], "optimizer")
    if any(isinstance(leaf, torch.Tensor) and leaf.isnan().any() for leaf in tree_leaves(engine["optimizer"]["state"])):
        raise ValueError("the optimiser's state has a NaN")
    signed = tree_map(lambda value: ANY if isinstance(value, float) else value, ours["schedule"])
    _alike(engine["schedule"], signed, "schedule")
    epochs, tested = len(history["loss"]), min(len(history["loss"]), len(history["accuracy"]))
    floats = {"loss": [-1.0] * epochs, "accuracy": [0.0] * tested, "seconds": [0.0] * epochs}
    _alike(history, {**floats, "provenance": ""}, "history")
    if any(fraction > 1 for fraction in history["accuracy"]):
        raise ValueError(f"the accuracies are {history['accuracy']}")
    texts = {kind: dict.fromkeys(names, "") for kind, names in data["fingerprint"].items()}
    _alike(data, {"fingerprint": texts, "epoch": 0 if isinstance(data["epoch"], int) else None}, "data")


def _alike(there, here, name):
    """Raise ValueError unless `there` has the form of the example `here`: keys, lengths, shapes, and kinds of values.

    A number may be infinite or negative, and a tensor have entries that are not finite, only where the example does.
    """
    if isinstance(here, dict | list | tuple):
        mine, theirs = (dict(enumerate(v)) if isinstance(v, list | tuple) else v for v in (here, there))
        fits = isinstance(theirs, dict) and theirs.keys() == mine.keys()
        for key in mine if fits else ():
            _alike(theirs[key], mine[key], f"{name}.{key}")
    elif isinstance(here, torch.Tensor):
        fits = isinstance(there, torch.Tensor) and there.shape == here.shape
        fits = fits and bool(there.isfinite().all() or not here.isfinite().all())
    elif isinstance(here, int | float):  # of either kind: a learning rate of 1 may become 0.5
        fits = isinstance(there, int | float) and not math.isnan(there)
        fits = fits and (there >= 0 or here < 0) and (math.isfinite(there) or math.isinf(here))
    else:
        fits = type(there) is type(here)
    if not fits:
        raise ValueError(f"{name} is {there!r}")


def _of(replicas):
    """Return the state of `Replicas`: once what is alike on all ranks, for each what it has for itself."""
    numbers = replicas.comm.numbers
    return {
        "fingerprint": replicas.fingerprint,
        "model": replicas.modules[0].state_dict(),
        "optimizer": replicas.optimizers[0].state_dict(),
        "schedule": replicas.schedulers[0].state_dict() if replicas.schedulers else None,
        "scaler": replicas.scalers[0].state_dict(),
        "ranks": replicas.comm.gather(
            [
                {
                    "buffers": {name: buffer.cpu() for name, buffer in module.named_buffers()},
                    "random": numbers and numbers.state,
                }
                for module in replicas.modules
            ]
        ),
    }


def _load(replicas, state):
    """Make every replica of this process what `_of` described; where their number is another, as rank 0's was."""
    ranks, numbers = state["ranks"], replicas.comm.numbers
    alike = len(ranks) == replicas.comm.world_size
    for i, (rank, module) in enumerate(zip(replicas.comm.here, replicas.modules, strict=True)):
        module.load_state_dict(state["model"])
        own = ranks[rank if alike else 0]
        buffers, random = own["buffers"], own.get("random")
        for name, buffer in module.named_buffers():
            buffer.copy_(buffers[name])
        if alike and numbers and random is not None:
            numbers.state = random
        # Copies: an optimiser keeps the tensors it is given when they are on its device already.
        replicas.optimizers[i].load_state_dict(copy.deepcopy(state["optimizer"]))
        replicas.scalers[i].load_state_dict(state["scaler"])
        if replicas.schedulers:
            replicas.schedulers[i].load_state_dict(copy.deepcopy(state["schedule"]))
    replicas.zero_grad()
