"""Checks of the exercises: each takes the reader's function, tries it, and prints one line that says what is wrong.

    checks.split_batch(split_batch)
    ✗ split_batch: 7 examples on 3 devices: device 0 got the examples 0, 1; expected 0, 1, 2

A check is a function that raises `Wrong` at the first fault and returns the sentence to print when there is none.
`@check` registers it in `CHECKS` under the exercise's name and does the printing. A fault names the input and what was
expected and got: a reader must be able to act on it. Inputs betray misrouting: values depend on their position, shards
are uneven, and gradients differ by powers of ten.
"""

import copy
import functools
from dataclasses import dataclass

import torch

CHECKS = {}  # name of the exercise, as in its cells' tags -> check


class Wrong(Exception):
    """What is wrong with the reader's function, in a sentence."""


@dataclass(frozen=True)
class Verdict:
    """What a check returns: true when the answer is right. It shows nothing in a notebook: the line was printed."""

    right: bool
    sentence: str

    def __bool__(self):
        """Return whether the answer is right."""
        return self.right

    def _ipython_display_(self):
        pass


def check(judge):
    """Register `judge` and return a check that prints ✓ or ✗, the reader's function and a sentence; it never raises."""

    @functools.wraps(judge)
    def run(function):
        try:
            if not callable(function):
                raise Wrong(f"expected the function itself, got {brief(function)}: leave out its parentheses")
            verdict = Verdict(True, judge(function))
        except Wrong as wrong:
            verdict = Verdict(False, str(wrong))
        except Exception as error:  # the answer was so odd that the check itself stumbled
            verdict = Verdict(False, f"the answer could not be read ({_name(error)})")
        print("✓" if verdict else "✗", f"{judge.__name__}: {verdict.sentence}")
        return verdict

    CHECKS[judge.__name__.replace("_", "-")] = run
    return run


def attempt(function, *inputs, given):
    """Return ``function(*inputs)``; raise Wrong, told with `given`, if it fails, returns None or changes an input."""
    before = copy.deepcopy(inputs)
    try:
        result = function(*inputs)
    except Exception as error:
        raise Wrong(f"{given}: your code raised {_name(error)}") from error
    if result is None:
        raise Wrong(f"{given}: nothing was returned; end with a return statement")
    if not _same(inputs, before):
        raise Wrong(f"{given}: your code changed its inputs; work on new tensors and lists")
    return result


def must_refuse(function, *inputs, given):
    """Raise Wrong, told with `given`, unless ``function(*inputs)`` raises a ValueError that says something."""
    try:
        result = function(*inputs)
    except ValueError as error:
        if not str(error):
            raise Wrong(f"{given}: the ValueError says nothing; say what was expected and what came") from error
    except Exception as error:
        raise Wrong(f"{given}: expected a ValueError, your code raised {_name(error)}") from error
    else:
        raise Wrong(f"{given}: expected a ValueError, your code returned {brief(result)}")


def brief(value):
    """Return a value in a few words: a tensor by its numbers if they are few, else by its shape."""
    if isinstance(value, torch.Tensor):
        few = value.numel() <= 6 and not value.is_meta
        return brief(value.tolist()) if few else f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)) and len(value) <= 6:
        return f"[{', '.join(brief(item) for item in value)}]"
    text = f"{value:g}" if isinstance(value, float) else " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "…"


def _name(error):
    message = " ".join(str(error).split())
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _same(a, b):
    if isinstance(a, torch.Tensor):
        return a.shape == b.shape and (a.is_meta or torch.equal(a, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    return a == b


@check
def split_batch(function):
    """``function(X, y, devices)``: the shards of X and of y, one a device, in order, sizes as torch.tensor_split's."""
    for examples, count in ((4, 2), (7, 3), (10, 4), (5, 2), (3, 3), (1, 1)):
        _try_split(function, examples, [torch.device("cpu")] * count)
    # The meta device holds no numbers, but every machine has it: it shows who forgot to move a shard.
    _try_split(function, 5, [torch.device("meta"), torch.device("cpu")])
    _try_split(function, 5, [torch.device("cpu"), torch.device("meta")])
    for examples, labels, count in ((2, 2, 3), (0, 0, 1), (6, 5, 2), (5, 6, 2)):
        X, y = _batch(examples)[0], _batch(labels)[1]
        given = f"{_many(examples, 'example')}, {_many(labels, 'label')}, {_many(count, 'device')}"
        must_refuse(function, X, y, [torch.device("cpu")] * count, given=given)
    return "every example goes to one device, in order, with its label; 7 examples on 3 devices are split 3, 2, 2"


def _batch(examples):
    """Return X [examples, 2] and y [examples] that tell which example they are: X[i] = (i, i + 0.5), y[i] = i."""
    y = torch.arange(examples)
    return torch.stack([y, y + 0.5], 1), y


def _try_split(function, examples, devices):
    names = f" ({', '.join(map(str, devices))})" if any(device.type == "meta" for device in devices) else ""
    given = f"{_many(examples, 'example')} on {_many(len(devices), 'device')}{names}"
    X, y = _batch(examples)
    result = attempt(function, X, y, list(devices), given=given)
    if not isinstance(result, (list, tuple)) or len(result) != 2:
        raise Wrong(f"{given}: expected two lists, the shards of X and those of y; got {brief(result)}")
    for name, whole, shards in zip("Xy", (X, y), result):
        if not isinstance(shards, (list, tuple)) or not all(isinstance(shard, torch.Tensor) for shard in shards):
            raise Wrong(f"{given}: expected a list of tensors for {name}, got {brief(shards)}")
        if len(shards) != len(devices):
            raise Wrong(f"{given}: expected one shard of {name} a device, got {_many(len(shards), 'shard')}")
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
        return _many(len(shard), noun)
    numbers = shard[:, 0] if name == "X" else shard
    return f"the {noun}{'s' * (len(shard) > 1)} {', '.join(f'{number:g}' for number in numbers.tolist())}"


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
        raise Wrong(f"{given}: expected a tensor, got {brief(got)}")
    if got.shape != place.shape or got.dtype != dtype or got.device != place.device:
        raise Wrong(f"{given}: expected a tensor like the gradients, shape {list(shape)}, {dtype}, {place.device}; "
                    f"got shape {list(got.shape)}, {got.dtype}, {got.device}")  # fmt: skip
    if any(got.data_ptr() == gradient.data_ptr() for gradient in gradients):
        raise Wrong(f"{given}: what you return is one of the inputs; return a new tensor")
    weighted = sum(gradient * size for gradient, size in zip(gradients, sizes))
    if not torch.allclose(got, weighted / sum(sizes)):
        raise Wrong(f"{given}: expected {brief(weighted / sum(sizes))}, got {brief(got)}{_slip(got, gradients, sizes)}")


def _slip(got, gradients, sizes):
    """Return a hint if `got` is what one of the usual slips gives."""
    weighted = sum(gradient * size for gradient, size in zip(gradients, sizes))
    slips = {
        "the gradients were added up but not divided": sum(gradients),
        "this is the plain average, in which a small shard counts as much as a large one": sum(gradients) / len(sizes),
        "the weighted sum still has to be divided by the number of examples": weighted,
        "the weighted sum was divided by the number of shards, not of examples": weighted / len(sizes),
    }
    return next((f" ({hint})" for hint, value in slips.items() if torch.allclose(got, value)), "")


def _many(count, noun):
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"
