"""Checks of the exercises: each takes the reader's function, tries it, and prints one line that says what is wrong.

    checks.split_batch(split_batch)
    ✗ split_batch: 7 examples on 3 devices: device 0 got the examples 0, 1; expected 0, 1, 2

A check is a function that raises `Wrong` at the first fault and returns the sentence to print when there is none.
`@check` registers it in `CHECKS` under the exercise's name and does the printing. A fault names the input and what was
expected and got: a reader must be able to act on it. Inputs betray misrouting: values depend on their position, shards
are uneven, and gradients differ by powers of ten.
"""

import contextlib
import copy
import functools
import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import partial
from itertools import islice
from numbers import Real

import torch

import simgpu
from d2lmini.checks.lines import line_of, said

MOST = 10**5  # values that are taken from a generator, which may have no end
CHECKS = {}  # name of the exercise, as in its cells' tags -> check
BEST = {}  # name of the lab -> the reader's lowest score since the kernel started


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
    def run(function, **said):
        try:
            if not callable(function):
                raise Wrong(f"expected the function itself, got {brief(function)}: leave out its parentheses")
            with _usual_torch():
                verdict = Verdict(True, judge(function, **said))
        except Wrong as wrong:
            verdict = Verdict(False, str(wrong))
        except Exception as error:  # the answer was so odd that the check itself stumbled
            verdict = Verdict(False, f"the answer could not be read ({_name(error)})")
        print("✓" if verdict else "✗", f"{judge.__name__}: {verdict.sentence}")
        return verdict

    CHECKS[judge.__name__.replace("_", "-")] = run
    return run


@contextlib.contextmanager
def _usual_torch():
    """Have gradients, and new tensors of float32 on the CPU, whatever the reader has set."""
    dtype = torch.get_default_dtype()
    torch.set_default_dtype(torch.float32)
    try:
        with torch.device("cpu"), torch.inference_mode(False), torch.enable_grad():
            yield
    finally:
        torch.set_default_dtype(dtype)


def attempt(function, *inputs, given):
    """Return ``function(*inputs)``.

    Args:
        function: The reader's.
        inputs: What it is given. Of numbers and lists of them it gets copies, which it may use up.
        given: The same in words.

    Raises:
        Wrong: It fails, returns None or changes a tensor or another object that it was given.
    """
    before = copy.deepcopy(inputs)
    try:
        result = called(function, *_handed(inputs), given=given)
    except Exception as error:
        raise Wrong(f"{given}: your code raised {_name(error)}{line_of(error)}") from error
    if result is None:
        raise Wrong(f"{given}: nothing was returned; end with a return statement")
    if not _same(inputs, before):
        raise Wrong(f"{given}: your code changed its inputs; work on new tensors")
    return result


def ask(function, *inputs, given, what, read=None):
    """Return the number that ``function(*inputs)`` is, or what `read` makes of it.

    Args:
        function: The reader's.
        inputs: What it is given.
        given: The same in words.
        what: What is expected, in words.
        read: A function of the answer that returns None where it is something else; by default `number`.

    Raises:
        Wrong: As `attempt`, and where the answer is not `what` was expected.
    """
    answer = attempt(function, *inputs, given=given)
    found = (read or number)(answer)
    if found is None:
        raise Wrong(f"{given}: expected {what}, got {typed(answer)}")
    return found


def called(function, *inputs, given=None):
    """Return ``function(*inputs)``; of a generator what it yields, so that what it raises or changes comes to light."""
    try:
        result = function(*inputs)
        return list(islice(result, MOST)) if isinstance(result, Iterator) else result
    except KeyboardInterrupt:
        if given:
            print(f"stopped, {given}")  # a reader who waits in vain wants to know for what
        raise


def must_refuse(function, *inputs, given, naming=("",)):
    """Raise Wrong unless ``function(*inputs)`` raises a ValueError that says something.

    Args:
        function: The reader's.
        inputs: What it is given.
        given: The same in words.
        naming: Words, of which the error's text must contain one.
    """
    try:
        result = called(function, *_handed(inputs), given=given)
    except ValueError as error:
        if not str(error) or not any(name in str(error) for name in naming):
            said = repr(str(error)) if str(error) else "nothing"
            raise Wrong(f"{given}: the ValueError says {said}; say what was expected and what came") from error
    except Exception as error:
        raise Wrong(f"{given}: expected a ValueError, your code raised {_name(error)}{line_of(error)}") from error
    else:
        raise Wrong(f"{given}: expected a ValueError, your code returned {brief(result)}")


def need_gpus(count=2, clock=True, numbers=True):
    """Have simulated GPUs: the reader's own, or new ones.

    Args:
        count: How many at least.
        clock: Whether they need a clock.
        numbers: Whether they compute; else their tensors have shapes alone.

    Raises:
        Wrong: New ones cannot take the place of the reader's, as tensors are left there.
    """
    fit = simgpu.is_enabled() and simgpu.has_numbers() == numbers and torch.sim.device_count() >= count
    if not fit or (clock and not simgpu.has_clock()):
        try:
            simgpu.enable(max(2, count), shapes_only=not numbers)
        except RuntimeError as error:
            raise Wrong(f"to try your code takes new simulated GPUs, and they cannot be made: {error}") from error


def brief(value, digits=10):
    """Return a value in a few words: a tensor by its numbers if they are few, else by its shape."""
    if isinstance(value, torch.Tensor):
        few = value.numel() <= 6 and not value.is_meta
        numbers = partial(brief, digits=10 if value.dtype == torch.float64 else 6)  # the others hold no more
        return numbers(value.tolist()) if few else f"a tensor of shape {list(value.shape)}"
    if isinstance(value, (list, tuple)) and len(value) <= 6:
        return f"[{', '.join(brief(item, digits) for item in value)}]"
    if isinstance(value, (list, tuple)):
        value = value[:30]  # no more is shown, and what a generator without end yields takes minutes to write out
    text = in_digits(value, digits) if isinstance(value, float) else " ".join(repr(value).split())
    return text if len(text) <= 60 else text[:57] + "…"


def in_digits(value, digits=10):
    """Return a number with six digits; with `digits` where six look like another number: 3.0000001 is not 3."""
    text = f"{value:g}"
    whole = sum(map(str.isdigit, text.partition("e")[0].lstrip("-0."))) < 6  # no sign that something was cut off
    return f"{value:.{digits}g}" if whole and float(text) != value else text


def apart(want, got, form="", first=".6g"):
    """Return two numbers as text, with as many digits as it takes to tell them apart: never "expected 15, got 15".

    Args:
        want, got: The numbers.
        form: "," to group digits, "+" for a sign.
        first: The digits to begin with, as a format.
    """
    for digits in (first, ".6g", ".10g", ".14g", ".17g"):
        texts = [_text(value, form, digits) for value in (want, got)]
        if texts[0] != texts[1]:
            break
    return texts


def _text(value, form="", digits=".6g"):
    if isinstance(value, int):
        return f"{value:{form}}"
    value = float(value)
    whole = value.is_integer() and abs(value) < 1e15  # not 1.02e+06 for a number of bytes
    return f"{value:{form}.0f}" if whole else f"{value:{form}{digits}}"


def expected(want, answer, unit=""):
    """Return "expected …, got …" for a number and an answer that should be it, with the answer's type."""
    got = number(answer)
    texts = (_text(want), brief(answer)) if got is None else apart(want, got)
    return f"expected {texts[0]}{unit}, got {texts[1]} ({type(answer).__name__})"


def must_be(want, got, *, given, unit="", form="", rel_tol=1e-9, slips=()):
    """Raise Wrong unless the number `got` is `want`.

    Args:
        want, got: What is right, and the reader's answer.
        given: What the reader's function was given, in words.
        unit: What follows both numbers.
        form: As in `apart`.
        rel_tol: How far the answer may be off, relative.
        slips: As in `usual_slip`.
    """
    if not math.isclose(got, want, rel_tol=rel_tol):
        told, found = apart(want, got, form)
        raise Wrong(f"{given}: expected {told}{unit}, got {found}{unit}{usual_slip(got, slips)}")


def usual_slip(got, slips):
    """Return " (hint)" for the first of the usual slips that gives an answer, else "".

    Args:
        got: The answer, a number or a tensor.
        slips: Pairs (hint, what the slip gives), or a dictionary of them.
    """
    same = torch.allclose if isinstance(got, torch.Tensor) else math.isclose
    pairs = slips.items() if isinstance(slips, Mapping) else slips
    return next((f" ({hint})" for hint, value in pairs if same(got, value)), "")


def number(value):
    """Return the one number that an answer is, whoever made it: Python, NumPy or torch; None where it is no number."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    value = Fraction(value) if isinstance(value, Decimal) else value  # which can be compared with any other
    return value if isinstance(value, Real) and not isinstance(value, bool) else None


def listed(value, count=None, unordered=False):
    """Return the list, of `count` items, that an answer is, also a set where `unordered`; None where it is none."""
    if getattr(value, "ndim", 0) > 0:
        value = value.tolist()
    other = isinstance(value, str | bytes | Mapping) or (isinstance(value, set | frozenset) and not unordered)
    if other or hasattr(value, "ndim") or not isinstance(value, Iterable):
        return None
    items = list(islice(value, MOST))
    return items if count in (None, len(items)) else None


def reals(answer, count=None):
    """Return the list of numbers that an answer is, `count` of them if given; None where it is none."""
    items = listed(answer, count)
    found = None if items is None else [number(item) for item in items]
    return None if found is None or None in found else found


pair = partial(reals, count=2)


def typed(value):
    """Return a value in a few words with its type, for a message that would else read "expected 15, got 15"."""
    kind = type(value).__name__
    if isinstance(value, torch.Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        kind = f"{kind} of shape {list(value.shape)}, {dtype}, on {value.device}"
    return f"{brief(value)} ({kind})"


def _name(error):
    message = said(error)
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


def _handed(inputs):
    """Return inputs for the reader's function, plain ones as copies: it may use these up."""
    return [copy.deepcopy(value) if _plain(value) else value for value in inputs]


def _plain(value):
    """Say whether a value is a number, a text, or a list of such, to any depth: nothing that others may hold."""
    if isinstance(value, (list, tuple)):
        return all(map(_plain, value))
    return value is None or isinstance(value, (Real, str))


def _same(a, b):
    if isinstance(a, torch.Tensor):
        return a.device == b.device and a.shape == b.shape and (a.is_meta or torch.equal(a, b))
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, dict):
        return list(a) == list(b) and all(map(_same, a.values(), b.values()))
    return a == b


def scored(name, value, book, unit, form=".2f"):
    """Return a lab's score in words: the reader's, the book's, and the reader's best where an earlier run was better.

    Args:
        name: The lab's, that is its check's.
        value: The score of an answer whose result is right, in `unit`; less is better.
        book: The score of the book's own answer.
        unit: What follows the number: "ms of communication are exposed".
        form: The format of the numbers.

    Returns:
        "0.31 ms of communication are exposed (the book's answer: 0.24; your best: 0.27)".
    """
    best = BEST[name] = min(value, BEST.get(name, value))
    texts = [f"{score:{form}}" for score in (value, book, best)]
    earlier = f"; your best: {texts[2]}" if texts[2] != texts[0] else ""
    return f"{texts[0]} {unit} (the book's answer: {texts[1]}{earlier})"


def many(count, noun, ending="s"):
    """Return a count with its noun in the right number: 1 shard, 2 shards."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}{ending}"
