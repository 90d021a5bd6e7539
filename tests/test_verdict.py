"""Who is blamed, from what the ranks tell of themselves: the rules, without processes."""

import os
import time

import pytest

from d2lmini.distributed.pulse import STAGE, Pulse, mark, pulse, slow, stage
from d2lmini.distributed.verdict import LONGER, TO_BEGIN, Beat, Seen, look, machine, verdict
from d2lmini.distributed.watch import busy_s

PATIENCE = 10.0


def beat(number=1, marks=5, busy_s=0.0, slow=False, pid=None, host="here", done=False, elsewhere=False):
    return Beat(number, marks, busy_s, slow, "model.forward", host, "elsewhere" if elsewhere else machine(),
                pid or os.getpid(), done)  # fmt: skip


def after(seconds, *, busy=0.0, beats=True, **first):
    """What is known of a rank that has stood at the same mark for so long, using `busy` of a processor."""
    seen = Seen().next(beat(**first), 1.0)
    for i in range(1, int(seconds) + 1):
        seen = seen.next(beat(**{**first, "number": 1 + i * beats, "busy_s": busy * i}), 1.0)
    return seen


def test_nobody_is_blamed_while_all_go_on_or_all_are_equally_far():
    assert verdict({0: after(0), 1: after(0, marks=6)}, PATIENCE) is None
    assert verdict({0: after(1000), 1: after(1000)}, PATIENCE) is None  # all compile, say
    assert verdict({0: after(9), 1: after(9, marks=6)}, PATIENCE) is None
    assert verdict({0: Seen(), 1: after(10)}, PATIENCE) is None  # has not begun


def test_who_is_behind_and_asleep_is_blamed():
    found = verdict({0: after(10, marks=7), 1: after(10), 2: after(2, marks=6)}, PATIENCE)
    who = f"(process {os.getpid()} on here)"
    assert found == f"rank 1 {who} has done nothing for 10 s while others waited: it is in model.forward"
    several = verdict({0: after(10), 1: after(10, marks=7), 2: after(10)}, PATIENCE)
    assert several.count("has done nothing") == 2
    assert "; rank 2 (" in several


@pytest.mark.parametrize("state", [{"busy": 0.5}, {"slow": True}], ids=["busy", "slow"])
def test_who_computes_or_reads_files_may_take_longer(state):
    others = after(1, marks=7)
    assert verdict({0: others, 1: after(PATIENCE * LONGER - 1, **state)}, PATIENCE) is None
    found = verdict({0: others, 1: after(PATIENCE * LONGER, **state)}, PATIENCE)
    assert "has come no further for 300 s while others waited" in found


def test_what_a_rank_computed_before_its_last_mark_does_not_count():
    seen = Seen().next(beat(busy_s=100.0), 1.0)
    for i in range(2, 12):
        seen = seen.next(beat(number=i, busy_s=100.0), 1.0)
    assert "has done nothing" in verdict({0: seen, 1: after(1, marks=7)}, PATIENCE)


def test_silence_and_death_are_told_apart_and_a_rank_that_is_done_is_let_go():
    silent = {0: after(0), 1: after(10, beats=False, elsewhere=True, pid=2**30)}
    assert "rank 1 (process 1073741824 on here) has given no sign of life for 10 s" in verdict(silent, PATIENCE)
    assert "rank 1 (process 1073741824 on here) was killed or has ended" in verdict({0: after(0), 1: after(
        0, pid=2**30)}, PATIENCE)  # fmt: skip
    assert verdict({0: after(0), 1: after(0, pid=2**30, elsewhere=True)}, PATIENCE) is None  # nobody here can know
    assert verdict({0: after(0), 1: after(1000, beats=False, pid=2**30, done=True)}, PATIENCE) is None


def test_who_stops_while_others_wait_is_not_taken_for_asleep():
    seen = after(4)
    for _ in range(9):
        seen = seen.next(seen.beat, 1.0)
    assert (seen.still_s, seen.silent_s) == (13.0, 9.0)
    assert verdict({0: after(0, marks=7), 1: seen}, PATIENCE) is None
    found = verdict({0: after(0, marks=7), 1: seen.next(seen.beat, 1.0)}, PATIENCE)
    assert "has given no sign of life for 10 s" in found


def test_who_never_begins_is_blamed_later():
    seen = Seen()
    for _ in range(int(PATIENCE * TO_BEGIN) - 1):
        seen = seen.next(None, 1.0)
    assert verdict({0: after(0), 1: seen}, PATIENCE) is None
    assert verdict({0: after(0), 1: seen.next(None, 1.0)}, PATIENCE).startswith("rank 1 has given no sign of life")


def test_stages_make_ranks_equal_again(monkeypatch):
    before = Pulse(pulse.marks, pulse.slow)
    try:
        pulse.marks = 3 * STAGE
        mark()
        mark(STAGE // 2)
        assert 3 * STAGE < pulse.marks < 4 * STAGE
        stage()
        assert pulse.marks == 4 * STAGE
        with slow(), slow():
            assert pulse.slow == before.slow + 2
        assert pulse.slow == before.slow
    finally:
        pulse.marks, pulse.slow = before.marks, before.slow


def test_computing_is_being_busy():
    began, used = busy_s(), time.process_time()
    while time.process_time() - used < 0.05:
        pass
    assert busy_s() - began >= 0.05


def test_who_had_to_wait_for_long_is_not_blamed_when_it_is_let_go():
    seen = {0: Seen(), 1: Seen()}
    for i in range(50):  # rank 1 computes, rank 0 waits for it
        seen = look(seen, {0: beat(number=i, marks=6), 1: beat(number=i, marks=5, busy_s=float(i))}, 1.0)
        assert verdict(seen, PATIENCE) is None
    for i in range(50, 59):  # rank 1 has gone on, and rank 0 has not told yet
        seen = look(seen, {0: beat(number=i, marks=6), 1: beat(number=i, marks=8)}, 1.0)
        assert verdict(seen, PATIENCE) is None
    seen = look(seen, {0: beat(number=60, marks=6), 1: beat(number=60, marks=8)}, 1.0)
    assert "rank 0 (process" in verdict(seen, PATIENCE)
