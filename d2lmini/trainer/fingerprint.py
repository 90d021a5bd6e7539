"""The fingerprint of a run: what decides it, as texts. A checkpoint and all ranks must have the same.

    {"model": {"net.0.weight": "float32 [6, 1, 5, 5]", …}, "optimiser": {"lr": "0.1", …}, "data": {"seed": "0", …}, …}

Not seen: what a function or a module's own `forward` computes, and transforms of a data set.
"""

import re
import zlib

import torch

from d2lmini.distributed.errors import CheckpointError

NOISE = re.compile(r" at 0x[0-9a-f]+|(?<=\d)\.0\b")  # an address is another in every process; 1.0 is 1
SAMPLES = 4096  # entries of a tensor, evenly spaced, that a checksum is of
DATA = ("seed", "batch_size", "num_examples", "shuffle", "drop_last")  # what an iterator over batches may have

Fingerprint = dict[str, dict[str, str]]  # what it is of -> name -> value, as text


def of_training(model, loss, optimizer, schedulers, settings) -> Fingerprint:
    """Return what decides the steps of a replica that was just made.

    Args:
        model, loss, optimizer: Of the replica.
        schedulers: Those of learning rates, none or one for each replica.
        settings: The `Settings`.
    """
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    function = getattr(loss, "func", loss)  # a partial's
    own = {**getattr(loss, "__dict__", {}), **getattr(loss, "_buffers", {}), **getattr(loss, "keywords", {})}
    own = {name: value for name, value in own.items() if _counts(name, value)}
    schedule = {"the class": type(schedulers[0]).__name__, **schedulers[0].state_dict()} if schedulers else {}
    return {
        "model": {
            **_of_tensors(model.state_dict()),
            **_texts({f"layer {name}": f"{type(m).__name__}({m.extra_repr()})" for name, m in model.named_modules()}),
        },
        "loss": {"the function": getattr(function, "__qualname__", type(function).__name__), **_texts(own)},
        "optimiser": {
            "the class": type(optimizer).__name__,
            **_texts(optimizer.defaults),
            "the number of parameters in its groups": str(sizes),
        },
        "schedule": _texts(schedule),
        "settings": _texts({name: getattr(settings, name) for name in ("accumulate", "clip", "amp")}),
    }


def of_engine(settings) -> dict[str, str]:
    """Return what decides how the ranks exchange gradients, which a checkpoint leaves open."""
    name = getattr(settings.allreduce, "__name__", settings.allreduce)
    return _texts({"name": settings.engine, "buckets": settings.buckets, "allreduce": name})


def of_data(batches) -> dict[str, str]:
    """Return what decides the batches of an iterator, as far as it says; its labels and images as checksums."""
    found = {name: getattr(batches, name, None) for name in DATA}
    found["number of batches"] = len(batches) if hasattr(batches, "__len__") else None
    kept = {f"checksum of the {name}": getattr(batches, name, None) for name in ("labels", "images")}
    return _texts({**found, **{name: checksum(t) for name, t in kept.items() if isinstance(t, torch.Tensor)}})


def of_options(options) -> dict[str, str]:
    """Return the options of a command line, but for the names of files, which may be each machine's own."""
    own = ("json", "checkpoint", "traceback")
    return _texts({name: value for name, value in vars(options).items() if name not in own})


def checksum(tensor: torch.Tensor) -> int:
    """Return a CRC-32 of a tensor's entries, of a long one's of `SAMPLES` or more; this waits for its device."""
    if tensor.layout is not torch.strided:
        return 0
    flat = tensor.detach().reshape(-1)
    some = flat[:: len(flat) // SAMPLES or 1].cpu().contiguous()
    return zlib.crc32(some.view(torch.uint8).numpy().data) if len(some) else 0


def different(there: Fingerprint, here: Fingerprint) -> tuple | None:
    """Return (kind, name, value there, value here) of the first value that differs, or None."""
    for kind in {**here, **there}:
        mine, theirs = here.get(kind, {}), there.get(kind, {})
        for name in {**theirs, **mine}:
            if mine.get(name) != theirs.get(name):
                return kind, name, theirs.get(name), mine.get(name)
    return None


def check(there: Fingerprint, here: Fingerprint, name: str) -> None:
    """Raise CheckpointError unless the run that wrote the checkpoint `name` has the fingerprint of this one."""
    found = different(there, here)
    if found:
        kind, value, old, new = found
        raise CheckpointError(f"{name}: saved with other {kind}: {value} is {old} there, {new} here")


def _of_tensors(tensors):
    """Return the types and shapes of tensors by name, and the types of what are none."""
    return {
        name: f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" if hasattr(t, "dtype") else type(t).__name__
        for name, t in tensors.items()
    }


def _counts(name, value):
    return isinstance(value, str | int | float | torch.Tensor) and not name.startswith("_") and name != "training"


def _texts(values):
    return {name: _text(value) for name, value in values.items()}


def _text(value):
    """Return the text of a value, the same in every process; a tuple's is a list's."""
    if isinstance(value, torch.Tensor):
        return f"a tensor with the checksum {checksum(value)}"
    return " ".join(NOISE.sub("", str(list(value) if isinstance(value, tuple) else value)).split())
