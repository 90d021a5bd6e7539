"""What a checkpoint of a trainer holds beside its replicas: how far it came, and where in its data it was.

    place     what decides the order of the epoch under way: facts of the data, its epoch, the random numbers it had
"""

import operator
from dataclasses import asdict
from itertools import islice

from d2lmini.trainer import facts, replica_state, rng
from d2lmini.trainer.errors import CheckpointError, first_line
from d2lmini.trainer.history import History, Progress


def get_state(replicas, history, progress, place):
    """Return the state of a trainer as plain values; a collective call."""
    return {"engine": replica_state.get(replicas), "history": asdict(history), "progress": asdict(progress),
            "place": place, "rng": rng.get_state(replicas.comm.devices)}  # fmt: skip


def check_state(replicas, state, name):
    """Return the (History, Progress, place) of a state that `replicas` can take over; nothing changes.

    Raises CheckpointError, with the `name` of the checkpoint, where they can't.
    """
    try:
        check_facts(state["engine"]["facts"], replicas.facts, name)
        replica_state.check(replicas, state["engine"])
        history, progress, place = History(**state["history"]), Progress(**state["progress"]), state["place"]
        progress.check()
        history.check(progress.epochs)
        rng.check(state["rng"], replicas.comm.devices)
        if place is not None:
            rng.check(place["rng"], replicas.comm.devices)
            facts.different(place["facts"], {})  # raises where these are no facts
            operator.index(place["epoch"] or 0)
    except CheckpointError:
        raise
    except Exception as error:
        what = f"is no checkpoint of a trainer ({type(error).__name__}: {first_line(error)})"
        raise CheckpointError(f"{name}: {what}") from error
    return history, progress, place


def find_place(batches, devices, data):
    """Return what decides the order of the epoch that is to begin; data: the facts of its `batches`."""
    return {"epoch": getattr(batches, "epoch", None), "facts": data, "rng": rng.get_state(devices)}


def check_facts(there, here, name):
    """Raise CheckpointError unless what decided the run that wrote a checkpoint is what decides this one."""
    found = facts.different(there, here)
    if found:
        kind, fact, old, new = found
        raise CheckpointError(f"{name}: saved with other {kind}: {fact} is {old} there, {new} here")


def go_back(place, batches, devices, done):
    """Return what is left of an epoch of which `done` batches are learnt.

    The iterator is started with the random numbers that it was started with then, so that it gives the same order,
    and what it gave already is passed over; after that the numbers go on where the checkpoint has them.
    """
    now = rng.get_state(devices)
    if place["epoch"] is not None:
        batches.epoch = place["epoch"]
    rng.set_state(place["rng"], devices)
    left = iter(batches)
    for _ in islice(left, done):
        pass
    if done:
        rng.set_state(now, devices)
    return left
