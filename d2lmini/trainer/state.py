"""What a checkpoint holds: everything that decides the next step of a trainer, as plain values.

engine    facts of the training, model, optimiser, schedule, scaler; for each rank its buffers and random numbers
data      facts of the data, and the number of the next epoch where the iterator counts them
history, rng
"""

import copy
import operator
from dataclasses import asdict

from torch.utils._pytree import tree_map

from d2lmini.distributed.errors import CheckpointError, first_line
from d2lmini.trainer import facts, rng
from d2lmini.trainer.history import History


def get(replicas, history, data):
    """Return the state of a trainer; a collective call."""
    return {
        "engine": _of(replicas),
        "history": asdict(history),
        "data": data,
        "rng": rng.get_state(replicas.comm.devices),
    }


def take(replicas, state, name):
    """Make the replicas what `get` described, and return its history and what it says of the data.

    Whether they can go on from there is tried. Where they can't, they are as they were, and CheckpointError is raised
    with the `name` of the checkpoint. A collective call.
    """
    before, numbers = copy.deepcopy(_of(replicas)), rng.get_state(replicas.comm.devices)
    try:
        check_facts(state["engine"]["facts"], replicas.facts, name)
        for part in ("schedule", "scaler"):
            if _numbers(state["engine"][part]) != _numbers(before[part]):
                raise TypeError(f"a {part} with values of another kind")
        data, history = {**state["data"]}, History(**state["history"])
        history.check()
        facts.different(data["facts"], {})  # raises where these are no facts
        operator.index(data["epoch"] or 0)
        _load(replicas, state["engine"])
        replicas.rehearse()
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


def _numbers(state):
    """Return a state with, for each value in it, whether it is a number: a rehearsal does not need all of them."""
    return tree_map(lambda value: isinstance(value, int | float), state)


def check_facts(there, here, name):
    """Raise CheckpointError unless what decided the run that wrote a checkpoint is what decides this one."""
    found = facts.different(there, here)
    if found:
        kind, fact, old, new = found
        raise CheckpointError(f"{name}: saved with other {kind}: {fact} is {old} there, {new} here")


def _of(replicas):
    """Return the state of `Replicas`: once what is alike on all ranks, for each what it has for itself."""
    numbers = replicas.comm.numbers
    return {
        "facts": replicas.facts,
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
    replicas.forget()
