"""The state of replicas as plain values that a checkpoint can hold: got, compared, loaded."""

import cmath
import copy

import torch


def get(engine):
    """Return everything that decides the next step of an engine, such as `replicas.Replicas`."""
    own = engine.own_states()
    return {
        "optimizer made": {"the class": type(engine.optimizers[0]).__name__, **_plain(engine.optimizers[0].defaults)},
        "model": engine.modules[0].state_dict(),
        "optimizer": engine.optimizers[0].state_dict(),
        "schedule": engine.schedulers[0].state_dict() if engine.schedulers else None,
        "scaler": engine.scalers[0].state_dict() if engine.scalers else None,
        **{key: [mine[key] for mine in own] for key in own[0]},  # one a replica
    }


def load(engine, state):
    """Make every replica of this process what `get` described; where their number is another, as the first one was."""
    found, alike = state["buffers"], len(state["buffers"]) == engine.world_size
    for i, (rank, module) in enumerate(zip(engine.here, engine.modules, strict=True)):
        module.load_state_dict(state["model"])
        for name, buffer in module.named_buffers():
            buffer.copy_(found[rank if alike else 0][name])
        # Copies: an optimiser keeps the tensors it is given when they are on its device already.
        engine.optimizers[i].load_state_dict(copy.deepcopy(state["optimizer"]))
        for made, key in ((engine.schedulers, "schedule"), (engine.scalers, "scaler")):
            if made:
                made[i].load_state_dict(copy.deepcopy(state[key]))


def check(ours, state):
    """Raise ValueError where `state` is that of another model or of another way to train it than `ours`."""
    for key in ("schedule", "scaler"):
        if (ours[key] is None) != (state[key] is None):
            raise ValueError(f"saved {'without' if ours[key] else 'with'} a {key}, and this trainer is not")
    for what, facts in (("model", _shapes), ("optimiser", _groups)):
        mine, theirs = facts(ours), facts(state)
        different = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
        if different:
            name = different[0]
            sides = f"{theirs.get(name)} there, {mine.get(name)} here"
            raise ValueError(f"saved with another {what}: {name} is {sides}")


@torch.no_grad()
def finite(parameters):
    """Return whether all parameters, at least one, are finite numbers; this waits for their device."""
    parameters = list(parameters)
    # A finite sum has finite terms, and takes a sixth of the time; one that is not may just have grown too large.
    if cmath.isfinite(torch.stack([p.sum() for p in parameters]).sum().item()):
        return True
    return bool(torch.stack([p.isfinite().all() for p in parameters]).all())


def _shapes(state):
    return {name: list(getattr(value, "shape", ())) for name, value in state["model"].items()}


def _groups(state):
    sizes = [len(group["params"]) for group in state["optimizer"]["param_groups"]]
    return {**state["optimizer made"], "the number of parameters in its groups": sizes}


def _plain(settings):
    return {name: value for name, value in settings.items() if not isinstance(value, torch.Tensor)}
