"""The checks of the exercises on throughput: right answers of other kinds pass, wrong ones are told what is wrong."""

import math

import numpy as np
import pytest
import torch

from d2lmini import checks
from d2lmini.measuring import line_fit, loading


def searched(batches, seconds, share):
    line = line_fit.fit(batches, seconds)
    return next(b for b in range(1, 10**6) if b / line.predict(b) >= share * line.beta * (1 - 1e-12))


def counted(load, step, cores):
    workers = next(w for w in range(1, cores + 1) if w * step >= load or w == cores)
    return [workers, loading.utilisation(load, step, workers)]


def plain_line(batches, seconds, share):
    t1, t0 = np.polyfit(batches, seconds, 1)
    return np.ceil(share / (1 - share) * t0 / t1).astype(int)


def middle_slope(batches, seconds, share):
    points = list(zip(batches, seconds))
    t1 = np.median([(u - t) / (c - b) for b, t in points for c, u in points if c > b])
    t0 = np.median([t - t1 * b for b, t in points])
    return torch.tensor(math.ceil(share / (1 - share) * t0 / t1))


def shares_solved(threads, seconds):
    rows = torch.tensor([[1.0, 1 / p] for p in threads], dtype=torch.float64)
    stays, shared = torch.linalg.lstsq(rows, torch.tensor(seconds, dtype=torch.float64)[:, None]).solution[:, 0]
    return stays / (stays + shared)


@pytest.mark.parametrize(("check", "answer"), [
    (checks.batch_for, searched), (checks.batch_for, plain_line), (checks.batch_for, middle_slope),
    (checks.worker_plan, counted), (checks.worker_plan, lambda *given: np.array(counted(*given))),
    (checks.worker_plan, lambda *given: (np.int64(counted(*given)[0]), torch.tensor(counted(*given)[1]))),
    (checks.serial_share, shares_solved), (checks.bounded_queue, lambda *g: np.array(loading.finish_times(*g))),
    (checks.bounded_queue, lambda *g: torch.tensor(loading.finish_times(*g))),
])  # fmt: skip
def test_other_right_answers_pass(check, answer):
    assert check(answer)


@pytest.mark.parametrize(("check", "answer", "message"), [
    (checks.batch_for, lambda b, t, s: 15.0, "expected a batch of 15, an int, got 15 (float)"),
    (checks.worker_plan, lambda *given: 4, "expected a pair of numbers (workers, utilisation), got 4"),
    (checks.worker_plan, lambda *given: (4, 0.5), "4 workers keep the device busy for 1 of the time, you say 0.5"),
    (checks.worker_plan, lambda *given: (5, 1.0), "load 624 µs, step 171 µs, 16 cores: expected 4 workers, got 5"),
    (checks.serial_share, lambda p, t: "0", "expected the number 0.0, got '0' (str)"),
    (checks.bounded_queue, lambda *given: [], "expected a list of 3 times, got []"),
    (checks.bounded_queue, lambda *given: [3, 5, 8], "step 2 ends at 7, you say 8"),
])  # fmt: skip
def test_what_is_wrong_is_told(check, answer, message):
    assert message in check(answer).sentence
