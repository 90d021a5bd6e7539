"""What decides a run, as texts: a checkpoint and all ranks must have the same.

    {"model": {"net.0.weight": "float32 [6, 1, 5, 5]", …}, "optimiser": {"lr": "0.1", …}, "data": {"seed": "0", …}, …}

Not seen: what a function or a module's own `forward` computes, transforms of a data set, examples beyond a sample.
"""

import re
import zlib
from contextlib import suppress

import torch

NOISE = re.compile(r" at 0x[0-9a-f]+|(?<=\d)\.0\b")  # an address is another in every process; 1.0 is 1
SOME = 256  # entries of a tensor or list, all over it, that a checksum is of
DATA = ("seed", "batch_size", "num_examples", "shuffle", "drop_last")  # what an iterator over batches may have


def of_training(model, loss, optimizer, schedulers, settings):
    """Return what decides the steps of a replica that was just made."""
    sizes = [len(group["params"]) for group in optimizer.param_groups]
    function = getattr(loss, "func", loss)  # a partial's
    own = {**getattr(loss, "__dict__", {}), **getattr(loss, "_buffers", {}), **getattr(loss, "keywords", {})}
    own = {name: value for name, value in own.items() if _counts(name, value)}
    schedule = (
        {"the class": type(schedulers[0]).__name__, **schedulers[0].state_dict(), "factors": _factors(schedulers[0])}
        if schedulers
        else {}
    )
    return {
        "model": {
            **of_tensors(model.state_dict()),
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


def of_engine(settings):
    """Return what decides how the ranks exchange gradients, which a checkpoint leaves open."""
    name = getattr(settings.allreduce, "__name__", settings.allreduce)
    return _texts({"name": settings.engine, "buckets": settings.buckets, "allreduce": name})


def of_data(batches):
    """Return what decides the batches of an iterator, as far as it says; its labels and examples as checksums."""
    found = {name: getattr(batches, name, None) for name in DATA}
    found["number of batches"] = len(batches) if hasattr(batches, "__len__") else None
    labels = getattr(batches, "labels", None)
    if hasattr(labels, "numpy"):
        found["checksum of the labels"] = zlib.crc32(labels.cpu().numpy().tobytes())
    source = getattr(batches, "dataset", batches)  # a DataLoader's
    examples = getattr(source, "images", getattr(source, "tensors", source if isinstance(source, list | tuple) else ()))
    return _texts({**found, "checksum of some examples": _checksum(examples)})


def _checksum(value, crc=0):
    """Return a CRC-32 of plain numbers and tensors, also in lists; of long ones, of some of their entries."""
    if isinstance(value, list | tuple):
        for part in value[:: len(value) // SOME + 1]:
            crc = _checksum(part, crc)
    elif getattr(value, "layout", None) is torch.strided:
        some = value[:: len(value) // SOME + 1] if value.dim() else value
        return zlib.crc32(some.detach().cpu().contiguous().flatten().view(torch.uint8).numpy(), crc)
    return zlib.crc32(str(value).encode(), crc) if isinstance(value, int | float) else crc


def _factors(schedule):
    """Return what the functions of a LambdaLR give for the first epochs, as far as they do."""
    found = []
    with suppress(Exception):
        for epoch in range(10):
            found += [function(epoch) for function in getattr(schedule, "lr_lambdas", ())]
    return found


def of_tensors(tensors):
    """Return the types and shapes of tensors by name, and the types of what are none."""
    return {
        name: f"{str(t.dtype).removeprefix('torch.')} {list(t.shape)}" if hasattr(t, "dtype") else type(t).__name__
        for name, t in tensors.items()
    }


def different(there, here):
    """Return (kind, name, value there, value here) of the first fact that differs, or None.

    Raises TypeError or AttributeError where those there are no texts.
    """
    if not all(isinstance(text, str) for texts in there.values() for text in texts.values()):
        raise TypeError("facts that are no texts")
    for kind in {**here, **there}:
        mine, theirs = here.get(kind, {}), there.get(kind, {})
        for name in {**theirs, **mine}:
            if mine.get(name) != theirs.get(name):
                return kind, name, theirs.get(name), mine.get(name)
    return None


def of_options(options):
    """Return the options of a command line, but for the names of files, which may be each machine's own."""
    own = ("json", "checkpoint")
    return _texts({name: value for name, value in vars(options).items() if name not in own})


def _counts(name, value):
    return isinstance(value, str | int | float | torch.Tensor) and not name.startswith("_") and name != "training"


def _texts(values):
    return {name: _text(value) for name, value in values.items()}


def _text(value):
    """Return the text of a value, the same in every process; a tuple's is a list's."""
    if isinstance(value, torch.Tensor):
        return f"a tensor with the checksum {_checksum(value)}"
    return " ".join(NOISE.sub("", str(list(value) if isinstance(value, tuple) else value)).split())
