"""The checks on numbers accept right answers in unusual form, and other right answers than the worked ones."""

import math

import numpy as np
import pytest
import torch

from d2lmini import checks

NUMBERS = [int, np.int64, np.array, torch.tensor]


@pytest.mark.parametrize("turned", NUMBERS)
def test_a_number_in_any_form(turned, capsys):
    assert checks.most_ranks(lambda dense, message: turned(max(1, -(-2 * dense // message) - 1)))


@pytest.mark.parametrize("turned", [float, np.float64, np.array, torch.tensor])
def test_a_scale_found_by_doubling(turned, capsys):
    def scale(gradients, largest):
        most = max(float(g.abs().max()) for g in gradients)
        mantissa, exponent = math.frexp(most)
        ends = [2.0**e for e in range(-exponent - 40, -exponent + 80)]
        return turned(max(s for s in ends if s * most <= largest)) if mantissa else 1

    assert checks.loss_scale(scale)


def codes(x):
    low, high = min(0, x.min()), max(0, x.max())
    scale = float(high - low) / 255 or 0.5
    zero = round(float(-low) / scale)
    return np.clip(np.rint(np.asarray(x) / scale + zero), 0, 255).astype(np.uint8), scale, zero


@pytest.mark.parametrize("turned", [tuple, list, lambda triple: (triple[0].tolist(), np.float32(triple[1]), triple[2])])
def test_codes_in_any_form(turned, capsys):
    assert checks.zero_point(lambda x: turned(codes(x)))


@pytest.mark.parametrize("turned", [tuple, list, lambda triple: tuple(part.tolist() for part in triple)])
def test_what_is_sent_may_come_in_any_order(turned, capsys):
    def send(gradient, unsent, k):
        due = gradient + unsent
        places = due.abs().argsort()[-k:]
        return turned([due[places], places, due.index_fill(0, places, 0)])

    assert checks.send_largest(send)


@pytest.mark.parametrize("answer", [None, "7", (1, 2), [[1.0]], {}])
@pytest.mark.parametrize("name", ["loss-scale", "most-ranks", "send-largest", "zero-point"])
def test_what_is_no_answer_is_told(name, answer, capsys):
    assert not checks.CHECKS[name](lambda *given: answer)
    assert "could not be read" not in capsys.readouterr().out
