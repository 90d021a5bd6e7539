"""Checks of the exercises on shards: cutting a batch, putting gradients and statistics together, and what it moves."""

import math
import sys
from functools import partial

import numpy as np
import torch
from torch.overrides import TorchFunctionMode

from d2lmini.checks.mechanism import (
    Wrong,
    apart,
    ask,
    attempt,
    brief,
    check,
    listed,
    many,
    must_refuse,
    pair,
    typed,
    usual_slip,
)


class _Cuts(TorchFunctionMode):
    """The names of torch's and NumPy's functions that cut, like tensor_split and chunk, called in here."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_function__(self, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if "split" in name or "chunk" in name:
            self.seen.append(name)
        return function(*args, **(kwargs or {}))

    def __enter__(self):
        sys.setprofile(self._watch)
        return super().__enter__()

    def __exit__(self, *error):
        sys.setprofile(None)
        return super().__exit__(*error)

    def _watch(self, frame, event, _):
        """Note NumPy's array_split and split, which are written in Python and know nothing of torch's modes."""
        numpys = event == "call" and frame.f_globals.get("__name__", "").startswith("numpy.")
        if numpys and frame.f_code.co_name.endswith("split"):
            self.seen.append(frame.f_code.co_name)


@check
def split_batch(function):
    """``function(X, y, devices)``: shards of X and of y for each device, in order, sizes as tensor_split's; by slices.

    Functions of torch and NumPy that split, and `chunk`, are refused.
    """
    for examples, count in ((4, 2), (7, 3), (10, 4), (5, 2), (3, 3), (1, 1)):
        _try_split(function, examples, [torch.device("cpu")] * count)
    # The meta device holds no numbers, but every machine has it: it shows who forgot to move a shard.
    _try_split(function, 5, [torch.device("meta"), torch.device("cpu")])
    _try_split(function, 5, [torch.device("cpu"), torch.device("meta")])
    for examples, labels, count in ((2, 2, 3), (0, 0, 1), (6, 5, 2), (5, 6, 2)):
        X, y = _batch(examples)[0], _batch(labels)[1]
        given = f"{many(examples, 'example')}, {many(labels, 'label')}, {many(count, 'device')}"
        naming = [str(n) for n in (examples, labels, count)] if examples else [""]
        must_refuse(function, X, y, [torch.device("cpu")] * count, given=given, naming=naming)
    return "every example goes to one device, in order, with its label; 7 examples on 3 devices are split 3, 2, 2"


def _batch(examples):
    """Return X [examples, 2] and y [examples] that tell which example they are: X[i] = (i, i + 0.5), y[i] = i."""
    y = torch.arange(examples)
    return torch.stack([y, y + 0.5], 1), y


def _try_split(function, examples, devices):
    names = f" ({', '.join(map(str, devices))})" if any(device.type == "meta" for device in devices) else ""
    given = f"{many(examples, 'example')} on {many(len(devices), 'device')}{names}"
    X, y = _batch(examples)
    cuts = _Cuts()

    def watched(*inputs):
        with cuts:
            return function(*inputs)

    what, read = "two lists, the shards of X and those of y", partial(listed, count=2)
    both = ask(watched, X, y, list(devices), given=given, what=what, read=read)
    if cuts.seen:
        raise Wrong(f"{given}: your code called {cuts.seen[0]}; cut the batch with slices, like X[start:stop]")
    for name, whole, answer in zip("Xy", (X, y), both):
        shards = listed(answer)
        if shards is None or not all(isinstance(shard, torch.Tensor) for shard in shards):
            raise Wrong(f"{given}: expected a list of tensors for {name}, got {typed(answer)}")
        if len(shards) != len(devices):
            raise Wrong(f"{given}: expected one shard of {name} for each device, got {many(len(shards), 'shard')}")
        for rank, (want, got) in enumerate(zip(whole.tensor_split(len(devices)), shards)):
            _compare_shard(f"{given}: device {rank}", name, want.to(devices[rank]), got)


def _compare_shard(given, name, want, got):
    if got.device != want.device:
        raise Wrong(f"{given} should hold its shard of {name}, but that is on {got.device}: use .to(device)")
    if got.dtype != want.dtype or got.ndim != want.ndim or got.shape[1:] != want.shape[1:]:
        expected = f"{list(want.shape)}, {want.dtype}"
        raise Wrong(f"{given}: expected a shard of {name} like {expected}; got {list(got.shape)}, {got.dtype}")
    if len(got) != len(want) or not (got.is_meta or torch.equal(got, want)):
        told, expected = _rows(name, got), _rows(name, want)
        raise Wrong(f"{given} got {told if told != expected else 'other values, ' + brief(got)}; expected {expected}")


def _rows(name, shard):
    """Return which examples a shard holds, as far as it tells."""
    noun = "example" if name == "X" else "label"
    if shard.is_meta or not len(shard):
        return many(len(shard), noun)
    places = shard[:, 0] if name == "X" else shard
    return f"the {noun}{'s' * (len(shard) > 1)} {', '.join(f'{place:g}' for place in places.tolist())}"


@check
def mean_gradient(function):
    """``function(shard_gradients, shard_sizes)``: the gradient of the mean loss over the batch, from its shards'."""
    for sizes in ((3, 1), (2, 2), (3, 2, 2), (1, 2, 5, 1), (4,)):
        for shape, dtype in (((2,), torch.float32), ((2, 3), torch.float64)):
            _try_mean(function, sizes, shape, dtype)
    return "a shard counts as much as it has examples; the plain average is right only when all shards are equal"


def _try_mean(function, sizes, shape, dtype):
    place = torch.arange(1, 1 + torch.Size(shape).numel(), dtype=dtype).reshape(shape)
    gradients = [place * 10**rank for rank in range(len(sizes))]
    given = f"shards of {', '.join(map(str, sizes))} examples with gradients {', '.join(brief(g) for g in gradients)}"
    got = attempt(function, list(gradients), list(sizes), given=given)
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{given}: expected a tensor, got {typed(got)}")
    if got.shape != place.shape or got.dtype != dtype or got.device != place.device:
        raise Wrong(
            f"{given}: expected a tensor like the gradients, shape {list(shape)}, {dtype}, {place.device}; "
            f"got shape {list(got.shape)}, {got.dtype}, {got.device}"
        )
    if any(got.data_ptr() == gradient.data_ptr() for gradient in gradients):
        raise Wrong(f"{given}: what you return is one of the inputs; return a new tensor")
    weighted = sum(gradient * size for gradient, size in zip(gradients, sizes))
    if not torch.allclose(got, weighted / sum(sizes)):
        average = sum(gradients) / len(sizes)
        slips = {
            "the gradients were added up but not divided": sum(gradients),
            "this is the plain average, in which a small shard counts as much as a large one": average,
            "the weighted sum still has to be divided by the number of examples": weighted,
            "the weighted sum was divided by the number of shards, not of examples": weighted / len(sizes),
        }
        told = f"expected {brief(weighted / sum(sizes))}, got {brief(got)}"
        raise Wrong(f"{given}: {told}{usual_slip(got, slips)}")


@check
def joined_moments(function):
    """``function(counts, means, variances)``: mean and variance [C] of a batch from those of its shards."""
    for sizes in ((3, 2), (2, 2), (1, 4, 2), (5,), (1, 1)):
        _try_moments(function, sizes)
    return "the shards' sizes count, and so does how far their means lie apart"


def _try_moments(function, sizes):
    X = torch.rand(sum(sizes), 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    X += torch.arange(len(X)).view(-1, 1) // 2  # so that the shards' means lie apart
    shards = X.split(sizes)
    means, variances = [s.mean(0) for s in shards], [s.var(0, correction=0) for s in shards]
    given = f"shards of {', '.join(map(str, sizes))} examples"
    answer = attempt(function, list(sizes), means, variances, given=given)
    both = answer if isinstance(answer, torch.Tensor | np.ndarray) else listed(answer)
    if both is None or len(both) != 2:
        raise Wrong(f"{given}: expected two tensors, the mean and the variance, got {brief(answer)}")
    for name, got, want in zip(("mean", "variance"), both, (X.mean(0), X.var(0, correction=0))):
        got = torch.as_tensor(got) if isinstance(got, np.ndarray | list | tuple) else got
        if not torch.is_tensor(got) or got.shape != want.shape:
            raise Wrong(f"{given}: expected the {name} as a tensor of shape {list(want.shape)}, got {typed(got)}")
        got = got.to(want.dtype)
        if not torch.allclose(got, want):
            between = "the mean of the variances leaves out how far the means lie apart"
            slips = (
                ("this is divided by n - 1; batch normalisation divides by n", X.var(0)),
                (between, sum(variances) / len(variances)),
                (between, sum(n * v for n, v in zip(sizes, variances)) / len(X)),
            )
            told = f"the {name} should be {brief(want)}, got {brief(got)}"
            raise Wrong(f"{given}: {told}{usual_slip(got, slips)}")


@check
def first_gpu_bytes(function):
    """``function(parameters, outputs, gpus)``: bytes into GPU 0 in a step, by DataParallel and by a ring."""
    for parameters, outputs, gpus in ((8320, 16384, 2), (8320, 16384, 4), (8320, 16384, 8), (100, 0, 5), (640, 640, 1)):
        given = f"{parameters:,} bytes of parameters, {outputs:,} of outputs, {many(gpus, 'GPU')}"
        both = ask(function, parameters, outputs, gpus, given=given, what="two numbers of bytes", read=pair)
        want_both = (gpus - 1) * (outputs / gpus + parameters), 2 * parameters * (gpus - 1) / gpus
        for got, way, want in zip(both, ("DataParallel", "the ring"), want_both):
            if not math.isclose(got, want):
                told, found = apart(want, got, ",")
                raise Wrong(f"{given}: expected {told} for {way}, got {found}")
    return "what enters the first GPU grows with their number, and a ring stays below twice the parameters"
