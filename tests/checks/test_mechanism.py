"""The checks of the exercises: what they print, and that they hold the right answer to be right."""

import itertools
from collections import deque

import numpy as np
import pytest
import torch

from d2lmini import checks
from d2lmini.checks import Wrong, attempt, brief, mechanism, must_refuse
from d2lmini.data_parallel.by_hand import split_batch


@pytest.fixture
def halve(monkeypatch):
    """A small check, registered for one test."""
    monkeypatch.setattr(mechanism, "CHECKS", {})

    @checks.check
    def halve_it(function):
        """``function(x)``: half of x, a list of one number."""
        if attempt(function, [4], given="x = [4]") != 2:
            raise Wrong("x = [4]: expected 2")
        return "2 is half of 4"

    return halve_it


def clear(x):
    x.clear()
    return 2


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (lambda x: x[0] / 2, "2 is half of 4"),
        (lambda x: x[0], "x = [4]: expected 2"),
        (lambda x: None, "x = [4]: nothing was returned; end with a return statement"),
        (
            eval(compile("lambda x: (\nx / 2)", "<cell>", "eval")),
            "x = [4]: your code raised TypeError: unsupported operand type(s) for /: 'list' and 'int' (in line 2)",
        ),
        (lambda: 2, "x = [4]: your code raised TypeError: <lambda>() takes 0 positional arguments but 1 was given"),
        (clear, "2 is half of 4"),  # a list may be used up
        (2, "expected the function itself, got 2: leave out its parentheses"),
        (
            lambda x: torch.ones(2),
            "the answer could not be read (RuntimeError: Boolean value of Tensor with more than one "
            "value is ambiguous)",
        ),
    ],
)
def test_check_prints_one_line_and_returns_a_verdict(halve, answer, says, capsys):
    verdict, right = halve(answer), says == "2 is half of 4"
    assert capsys.readouterr() == (f"{'✓' if right else '✗'} halve_it: {says}\n", "")
    assert (bool(verdict), verdict.sentence) == (right, says)


def test_check_is_registered_under_the_name_of_its_tags(halve):
    assert list(mechanism.CHECKS.items()) == [("halve-it", halve)]
    assert halve.__doc__.startswith("``function(x)``")


def test_interrupt_passes_through_and_the_input_is_told(halve, capsys):
    def interrupted(x):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        halve(interrupted)
    assert capsys.readouterr().out == "stopped, x = [4]\n"
    with pytest.raises(KeyboardInterrupt):
        must_refuse(interrupted, 5, given="x = 5")
    assert capsys.readouterr().out == "stopped, x = 5\n"


def refused(x):
    yield x
    raise ValueError("late")


def test_of_a_generator_all_that_it_does_is_seen():
    assert attempt(iter, [1, 2], given="x") == [1, 2]
    assert len(attempt(itertools.count, 1, given="x")) == mechanism.MOST
    with pytest.raises(Wrong, match="x: your code changed its inputs"):
        attempt(lambda x: (t.add_(1) for t in x), [torch.zeros(2)], given="x")
    with pytest.raises(Wrong, match="x: your code raised ValueError: late"):
        attempt(refused, 1, given="x")
    must_refuse(refused, 1, given="x", naming=["early", "late"])
    with pytest.raises(Wrong, match="x: the ValueError says 'late'"):
        must_refuse(refused, 1, given="x", naming=["early"])


@pytest.mark.parametrize(
    "value",
    [
        [1, 2],
        (1, 2),
        range(1, 3),
        deque([1, 2]),
        {"a": 1, "b": 2}.values(),
        {1: "a", 2: "b"}.keys(),
        map(int, "12"),
        np.array([1, 2]),
        torch.tensor([1.0, 2.0]),
        [np.int64(1), torch.tensor(2)],
    ],
)
def test_every_kind_of_list_is_read(value):
    assert mechanism.reals(value, 2) == [1, 2]


@pytest.mark.parametrize(
    "value",
    [
        "12",
        b"12",
        {1: 2},
        {1, 2},
        12,
        None,
        torch.tensor(1),
        np.array(1),
        [1, "2"],
        [1, True],
    ],
)
def test_what_is_no_list_of_numbers_is_not_read(value):
    assert mechanism.reals(value) is None


def test_sets_are_lists_only_where_no_order_counts():
    assert sorted(mechanism.listed({2, 1}, unordered=True)) == [1, 2]
    assert mechanism.listed(frozenset([1])) is None
    assert mechanism.reals([1, 2], 3) is None


def test_changed_tensors_are_noticed():
    with pytest.raises(Wrong, match="t: your code changed its inputs"):
        attempt(lambda t: t.add_(1), torch.zeros(2), given="t")
    with pytest.raises(Wrong, match="t: your code changed its inputs"):
        attempt(lambda t: t[0].resize_(3), [torch.zeros(2)], given="t")
    assert attempt(lambda t: t.shape, torch.zeros(2, device="meta"), given="t") == (2,)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (lambda: [1], r"no input: expected a ValueError, your code returned \[1\]"),
        (lambda: [][0], "no input: expected a ValueError, your code raised IndexError: list index out of range"),
        (lambda: exec("raise ValueError"), "no input: the ValueError says nothing"),
    ],
)
def test_missing_refusals_are_told(answer, message):
    with pytest.raises(Wrong, match=message):
        must_refuse(answer, given="no input")


def test_a_refusal_that_says_something_is_right():
    must_refuse(lambda x: int(x), "three", given="x = three")


def test_brief_values():
    assert brief([torch.tensor([1, 2]), 1 / 3]) == "[[1, 2], 0.333333]"
    assert brief(torch.zeros(7, 2)) == "a tensor of shape [7, 2]"
    assert brief(torch.zeros(1, device="meta")) == "a tensor of shape [1]"
    assert len(brief("word " * 100)) <= 60


def test_mean_gradient_is_what_autograd_says():
    """The rule that the check holds to be right gives the gradient of the mean loss over a whole batch."""
    torch.manual_seed(0)
    X, y = torch.randn(7, 3, dtype=torch.float64), torch.randn(7, dtype=torch.float64)

    def gradient(X, y):
        w = torch.ones(3, dtype=torch.float64, requires_grad=True)
        ((X @ w - y) ** 2).mean().backward()
        return w.grad

    def right(gradients, sizes):
        return torch.stack([n * g for n, g in zip(sizes, gradients)]).sum(0) / sum(sizes)

    X_shards, y_shards = split_batch(X, y, ["cpu"] * 3)
    assert checks.mean_gradient(right)
    torch.testing.assert_close(right([*map(gradient, X_shards, y_shards)], [3, 2, 2]), gradient(X, y))


def test_a_score_stands_beside_the_books_and_the_best_of_the_earlier_runs(monkeypatch):
    monkeypatch.setattr(mechanism, "BEST", {})
    found = [mechanism.scored("lab", value, 3, "ms", ".1f") for value in (9.0, 5.0, 7.0, 5.01)]
    assert found[:2] == ["9.0 ms (the book's answer: 3.0)", "5.0 ms (the book's answer: 3.0)"]
    assert found[2:] == ["7.0 ms (the book's answer: 3.0; your best: 5.0)", "5.0 ms (the book's answer: 3.0)"]
    assert mechanism.scored("other lab", 8.0, 3, "ms", ".0f") == "8 ms (the book's answer: 3)"
