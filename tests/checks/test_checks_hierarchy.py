"""The memory hierarchy's checks accept right answers in unusual form, and say which type a wrong one has."""

import math

import numpy as np
import pytest
import torch

from d2lmini import checks


def lines(bytes_per_s, latency_s, line):
    return math.ceil(bytes_per_s * latency_s / line)


@pytest.mark.parametrize("turned", [float, np.int64, np.array, torch.tensor, lambda x: np.ceil(x).astype(int)])
def test_a_number_of_lines_in_any_form(turned):
    assert checks.lines_in_flight(lambda *given: turned(lines(*given)))


@pytest.mark.parametrize(("turned", "kind"), [(str, "str"), (lambda x: [x], "list"), (lambda x: x > 0, "bool"),
                                              (lambda x: torch.tensor([x]), "Tensor")])  # fmt: skip
def test_what_is_no_number_is_told_with_its_type(turned, kind):
    assert f"({kind})" in checks.lines_in_flight(lambda *given: turned(lines(*given))).sentence


def attainable(m, k, n, itemsize, peak, rate):
    return min(peak, 2 * m * k * n / (itemsize * (m * k + k * n + m * n)) * rate)


@pytest.mark.parametrize("turned", [int, round, np.float32, np.float64, np.array, torch.tensor])
def test_a_rate_in_any_form(turned):
    assert checks.attainable_product(lambda *given: turned(attainable(*given)))


def test_a_rate_that_is_infinite_or_none_is_refused():
    assert not checks.attainable_product(lambda *given: math.inf)
    assert "whole number" in checks.lines_in_flight(lambda *given: math.nan).sentence


def cycle_of_visits(n, rng):
    visit = list(range(n))
    rng.shuffle(visit)
    places = [0] * n
    for here, there in zip(visit, visit[1:] + visit[:1]):
        places[here] = there
    return places


def drawn_until_it_is_one(n, rng):
    while True:
        places = rng.sample(range(n), n)
        at, length = places[0], 1
        while at:
            at, length = places[at], length + 1
        if length == n:
            return places


@pytest.mark.parametrize("turned", [list, torch.tensor])
def test_a_cycle_in_any_form_and_by_any_way(turned):
    assert checks.random_cycle(lambda n, rng: turned(cycle_of_visits(n, rng)))


def test_a_cycle_found_by_trying():
    assert checks.random_cycle(drawn_until_it_is_one)


@pytest.mark.parametrize("answer", [lambda n, rng: n, lambda n, rng: ["a"] * n, lambda n, rng: [0.5] * n,
                                    lambda n, rng: [], lambda n, rng: {}])  # fmt: skip
def test_what_is_no_cycle_is_refused(answer):
    assert not checks.random_cycle(answer)
