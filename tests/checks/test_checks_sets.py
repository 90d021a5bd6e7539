"""The checks on working sets accept right answers in unusual form, and say which type a wrong one has."""

import math

import numpy as np
import pytest
import torch

from d2lmini import checks

NUMBERS = [int, float, np.int64, np.float64, np.array, torch.tensor]


def macs(inputs, outputs, kernel, height, width):
    return height * width * (inputs * kernel**2 + inputs * outputs)


def images(capacity, parameters, per_image, optimizer):
    return max(0, (capacity - 4 * {"sgd": 2, "momentum": 3, "adam": 4}[optimizer] * parameters) // per_image)


def peak(saved, k):
    return max(sum(saved[: s + 1 : k]) + sum(saved[s + 1 : s + k]) for s in range(0, len(saved), k))


ANSWERS = [(checks.separable_macs, macs), (checks.largest_batch, images), (checks.checkpointed_peak, peak)]


@pytest.mark.parametrize("turned", NUMBERS)
@pytest.mark.parametrize(("check", "right"), ANSWERS)
def test_a_number_in_any_form(check, right, turned):
    assert check(lambda *given: turned(right(*given)))


@pytest.mark.parametrize(("turned", "kind"), [(str, "str"), (lambda x: [x], "list"), (lambda x: x > 0, "bool"),
                                              (lambda x: torch.tensor([x]), "Tensor")])  # fmt: skip
@pytest.mark.parametrize(("check", "right"), ANSWERS)
def test_what_is_no_number_is_told_with_its_type(check, right, turned, kind):
    assert check(lambda *given: turned(right(*given))).sentence.endswith(f"({kind})")


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(("check", "right"), ANSWERS)
def test_what_is_no_finite_number_is_refused(check, right, odd):
    assert "got" in check(lambda *given: odd).sentence


def test_macs_by_a_formula_whose_division_rounds():
    assert checks.separable_macs(lambda a, b, k, h, w: h * w * k**2 * a * b * (1 / b + 1 / k**2))


def test_images_rounded_down_from_a_quotient():
    def largest(capacity, parameters, per_image, optimizer):
        numbers = 1 + ["", "sgd", "momentum", "adam"].index(optimizer)
        return np.floor(np.maximum(capacity - 4 * numbers * parameters, 0) / per_image)

    assert checks.largest_batch(largest)
