"""The state of replicas as plain values that a checkpoint can hold: got, checked, loaded."""

import cmath
import copy

import torch

from d2lmini.trainer import facts


def get(replicas):
    """Return everything that decides the next step of `Replicas`, once; only what ranks have for themselves for each.

    A collective call.
    """
    optional = {"schedule": replicas.schedulers, "scaler": replicas.scalers}
    return {
        "facts": replicas.facts,
        "model": replicas.modules[0].state_dict(),
        "optimizer": replicas.optimizers[0].state_dict(),
        **{name: made[0].state_dict() if made else None for name, made in optional.items()},
        "ranks": replicas.comm.gather([{"buffers": {name: buffer.cpu() for name, buffer in module.named_buffers()},
                                        **replicas.comm.state()} for module in replicas.modules]),
    }  # fmt: skip


def load(replicas, state):
    """Make every replica of this process what `get` described; where their number is another, as rank 0's was."""
    ranks, alike = state["ranks"], len(state["ranks"]) == replicas.comm.world_size
    for i, (rank, module) in enumerate(zip(replicas.comm.here, replicas.modules, strict=True)):
        module.load_state_dict(state["model"])
        for name, buffer in module.named_buffers():
            buffer.copy_(ranks[rank if alike else 0]["buffers"][name])
        # Copies: an optimiser keeps the tensors it is given when they are on its device already.
        replicas.optimizers[i].load_state_dict(copy.deepcopy(state["optimizer"]))
        for made, key in ((replicas.schedulers, "schedule"), (replicas.scalers, "scaler")):
            if made:
                made[i].load_state_dict(copy.deepcopy(state[key]))
    replicas.comm.load_state(ranks)
    replicas.forget()


def check(replicas, state):
    """Raise some error unless `load` would take `state`, which has the facts of `replicas`.

    Nothing changes: an optimiser of parameters that are thrown away tries the state for one step.
    """
    module = replicas.modules[0]
    _same(replicas.facts["model"], facts.of_tensors(state["model"]), "model")
    buffers, own = facts.of_tensors(dict(module.named_buffers())), facts.of_tensors(replicas.comm.state())
    for rank in state["ranks"] or [{}]:
        found = facts.of_tensors({name: rank.get(name) for name in own if name in rank})  # another engine's has none
        _same(buffers, facts.of_tensors(rank["buffers"]), "buffers")
        _same(own if found else {}, found, "random numbers")
    trial = [torch.zeros_like(p, requires_grad=True) for p in replicas.parameters[0]]
    for p in trial:
        p.grad = torch.zeros_like(p)
    optimizer = replicas.optimizer(trial)
    optimizer.load_state_dict(copy.deepcopy(state["optimizer"]))
    optimizer.step()
    for made, key in ((replicas.schedulers, "schedule"), (replicas.scalers, "scaler")):
        if made:
            _alike(made[0].state_dict(), state[key])


@torch.no_grad()
def finite(parameters):
    """Return whether all parameters, at least one, are finite numbers; this waits for their device."""
    parameters = list(parameters)
    # A finite sum has finite terms, and takes a sixth of the time; one that is not may just have grown too large.
    if cmath.isfinite(torch.stack([p.sum() for p in parameters]).sum().item()):
        return True
    return bool(torch.stack([p.isfinite().all() for p in parameters]).all())


def _same(ours, theirs, what):
    if ours != theirs:
        raise KeyError(f"the {what} of the checkpoint")


def _alike(ours, theirs):
    """Raise TypeError unless `theirs` has the keys, lengths and kinds of values that `ours` has."""
    if isinstance(ours, dict):
        for key in ours:
            _alike(ours[key], theirs[key])
    elif isinstance(ours, list | tuple):
        for mine, other in zip(ours, theirs, strict=True):
            _alike(mine, other)
    elif not (ours is None or isinstance(theirs, type(ours)) or (_is_number(ours) and _is_number(theirs))):
        raise TypeError(f"{type(theirs).__name__} for {type(ours).__name__}")


def _is_number(value):
    return isinstance(value, int | float) and not isinstance(value, bool)
