"""The checks of the exercises on throughput: right answers of other kinds pass, wrong ones are told what is wrong."""

import pytest

from d2lmini import checks
from d2lmini.measuring import line_fit, loading


def told(check, answer, capsys):
    verdict = check(answer)
    printed = capsys.readouterr().out
    assert printed.startswith("✓" if verdict else "✗")
    assert printed.count("\n") == 1
    return printed


def searched(batches, seconds, share):
    line = line_fit.fit(batches, seconds)
    return next(b for b in range(1, 10**6) if b / line.predict(b) >= share * line.beta * (1 - 1e-12))


def counted(load, step, cores):
    workers = next(w for w in range(1, cores + 1) if w * step >= load or w == cores)
    return [workers, loading.utilisation(load, step, workers)]


def test_other_right_answers_pass(capsys):
    assert told(checks.batch_for, searched, capsys).startswith("✓")
    assert told(checks.worker_plan, counted, capsys).startswith("✓")
    assert told(checks.bounded_queue, loading.finish_times, capsys).startswith("✓")


@pytest.mark.parametrize(("check", "answer", "message"), [
    (checks.batch_for, lambda b, t, s: 15.0, "expected a batch of 15, an int, got 15"),
    (checks.batch_for, lambda b, t, s: None, "nothing was returned"),
    (checks.worker_plan, lambda *given: 4, "expected a pair (workers, utilisation), got 4"),
    (checks.worker_plan, lambda *given: (4, 0.5), "4 workers keep the device busy for 100.0% of the time, you say"),
    (checks.worker_plan, lambda *given: (5, 1.0), "load 624 µs, step 171 µs, 16 cores: expected 4 workers, got 5"),
    (checks.serial_share, lambda p, t: "0", "expected 0.0, got '0'"),
    (checks.serial_share, lambda p, t: float("nan"), "expected 0.0, got nan"),
    (checks.bounded_queue, lambda *given: [], "expected a list of 3 times, got []"),
    (checks.bounded_queue, lambda *given: [3, 5, 8], "step 2 ends at 7, you say 8"),
])  # fmt: skip
def test_what_is_wrong_is_told(check, answer, message, capsys):
    assert message in told(check, answer, capsys)
