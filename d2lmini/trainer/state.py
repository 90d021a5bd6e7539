"""What a checkpoint holds: everything that decides the next step of a trainer, as plain values.

engine    the training's fingerprint, model, optimiser, schedule, scaler; for each rank its buffers and random numbers
data      the data's fingerprint, and the number of the next epoch where the iterator counts them
history, rng
"""

import copy
import math
from dataclasses import asdict

import torch
from torch.utils._pytree import tree_flatten, tree_map

from d2lmini.distributed.errors import CheckpointError
from d2lmini.trainer import fingerprint, rng
from d2lmini.trainer.history import History
from d2lmini.wording import first_line


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
        check_fingerprint(state["engine"]["fingerprint"], replicas.fingerprint, name)
        _check_values(state["engine"], replicas, before)
        data, history = {**state["data"]}, History(**state["history"])
        history.check()
        fingerprint.different(data["fingerprint"], {})  # raises where this is none
        _check_count(data["epoch"], "the number of the next epoch")
        _load(replicas, state["engine"])
        rng.set_state(state["rng"], replicas.comm.devices)
    except Exception as error:
        _load(replicas, before)
        rng.set_state(numbers, replicas.comm.devices)
        if isinstance(error, CheckpointError):
            raise
        what = f"is no checkpoint of a trainer ({type(error).__name__}: {first_line(error)})"
        raise CheckpointError(f"{name}: {what}") from error
    return history, data


def check_fingerprint(there, here, name: str) -> None:
    """Raise CheckpointError unless what decided the run that wrote a checkpoint is what decides this one."""
    found = fingerprint.different(there, here)
    if found:
        kind, value, old, new = found
        raise CheckpointError(f"{name}: saved with other {kind}: {value} is {old} there, {new} here")


def _check_values(state, replicas, before):
    """Refuse what no run of the trainer would have left: numbers that are none, or negative where they never are."""
    for name, _ in replicas.modules[0].named_parameters():
        if not state["model"][name].isfinite().all():
            raise ValueError(f"{name} has numbers that are not finite")
    if any(isinstance(value, torch.Tensor) and value.isnan().any() for value in _leaves(state["optimizer"]["state"])):
        raise ValueError("the optimiser's state is not a number")
    for theirs, ours in zip(state["optimizer"]["param_groups"], before["optimizer"]["param_groups"], strict=True):
        for name in ours.keys() - {"params"}:
            if not all(_is_like(*pair) for pair in zip(_leaves(theirs[name]), _leaves(ours[name]), strict=True)):
                raise ValueError(f"the optimiser's {name} is {theirs[name]!r}")
    for part in ("schedule", "scaler"):
        if tree_map(_is_number, state[part]) != tree_map(_is_number, before[part]):
            raise TypeError(f"a {part} with values of another kind")
        if any(_is_number(value) and math.isnan(value) for value in _leaves(state[part])):
            raise ValueError(f"a number of the {part} is none")
    if any(value < 0 for value in _leaves(state["scaler"])):
        raise ValueError("a scaler below 0")
    _check_count((state["schedule"] or {}).get("last_epoch"), "the schedule's epoch")


def _is_like(there, here):
    """Return whether a value can stand where another does: a number for a number, finite, and not below 0."""
    if not _is_number(here):
        return not _is_number(there)
    return _is_number(there) and (there >= 0 or here < 0) and (math.isfinite(there) or not math.isfinite(here))


def _check_count(value, what):
    if value is not None and (not isinstance(value, int) or value < 0):
        raise ValueError(f"{what} is {value!r}")


def _is_number(value):
    return isinstance(value, int | float)


def _leaves(values):
    return tree_flatten(values)[0]


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
