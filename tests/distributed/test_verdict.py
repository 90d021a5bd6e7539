"""Who is blamed, from what the ranks tell of themselves: the rules, without processes."""

import os
import time
from types import SimpleNamespace

import pytest
import torch

from d2lmini.distributed import pulse as pulses
from d2lmini.distributed.pulse import STAGE, WARM_UP, Pulse, familiar, mark, pulse, slow, stage
from d2lmini.distributed.verdict import AWAKE, LONGER, TO_BEGIN_S, Beat, Seen, look, machine, missing, verdict
from d2lmini.distributed.watch import busy_s

PATIENCE = 10.0


def beat(number=1, marks=5, busy_s=0.0, slow=False, pid=None, done=False, elsewhere=False, spent_s=0.0, longest_s=None):
    return Beat(number, marks, busy_s, slow, "model.forward", "here", "elsewhere" if elsewhere else machine(),
                pid or os.getpid(), done, spent_s, longest_s)  # fmt: skip


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


def on_a_batch(seconds, spent_s, longest_s, **state):
    """What is found of a rank that computed all the time, of which `spent_s` on one batch, while another waited."""
    found = after(seconds, busy=1.0, spent_s=spent_s, longest_s=longest_s, **state)
    return verdict({0: after(1, marks=7), 1: found}, PATIENCE)


def test_who_computes_on_one_batch_for_far_longer_than_ever_before_is_blamed_when_patience_is_lost():
    who = f"rank 1 (process {os.getpid()} on here)"
    assert on_a_batch(10, 10.0, 0.12) == (
        f"{who} has computed on one batch for 10 s while others waited, the longest before took 120 ms: it is in "
        "model.forward; raise --patience if that is honest")  # fmt: skip
    assert on_a_batch(9, 9.0, 0.12) is None


def test_the_time_of_the_processor_decides_how_long_a_batch_took():
    longest = 0.2
    assert LONGER * longest > AWAKE * PATIENCE
    assert on_a_batch(100, LONGER * longest - 0.1, longest) is None  # the machine has other work
    assert "on one batch for 100 s" in on_a_batch(100, LONGER * longest, longest)
    assert on_a_batch(100, AWAKE * PATIENCE - 0.1, 0.001) is None
    assert "took 1 ms" in on_a_batch(100, AWAKE * PATIENCE, 0.001)


def test_who_is_slow_or_in_a_work_that_is_not_known_yet_may_take_longer():
    assert on_a_batch(PATIENCE * LONGER - 1, 299.0, 0.1, slow=True) is None
    assert on_a_batch(PATIENCE * LONGER - 1, 299.0, None) is None
    assert on_a_batch(PATIENCE * LONGER - 1, 299.0, 10.0) is None
    for state in ({"slow": True, "longest_s": 0.1}, {"longest_s": None}, {"longest_s": 11.0}):
        assert "has come no further for 300 s" in on_a_batch(PATIENCE * LONGER, 300.0, **state)


def test_nobody_is_blamed_for_long_batches_that_all_take_or_for_one_that_others_do_not_wait_for():
    long = {"busy": 1.0, "spent_s": 100.0, "longest_s": 0.1}
    assert verdict({0: after(100, **long), 1: after(100, **long)}, PATIENCE) is None
    assert verdict({0: after(1), 1: after(100, **long, marks=6)}, PATIENCE) is None


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


def test_of_another_machine_nobody_knows_whether_a_rank_was_killed():
    here, there = (verdict({0: after(0), 1: after(10, beats=False, elsewhere=far)}, PATIENCE) for far in (False, True))
    rest = "is stopped, frozen, cut off, or in code that lets no other thread run"
    assert here.endswith(f"for 10 s: it {rest}")
    assert there.endswith(f"for 10 s: it was killed, or {rest}")


def test_when_torchrun_ends_all_it_is_said_who_is_missing():
    silent = after(4, beats=False)
    assert missing({0: after(9), 1: silent, 2: Seen()}, 4) == (
        f"rank 1 (process {os.getpid()} on here) has given no sign of life for 4 s; rank 2 had not begun")
    assert missing({0: after(9), 1: after(3, beats=False), 2: after(9, beats=False, done=True)}, 4) == ""


def test_who_stops_while_others_wait_is_not_taken_for_asleep():
    seen = after(4)
    for _ in range(9):
        seen = seen.next(seen.beat, 1.0)
    assert (seen.still_s, seen.silent_s) == (13.0, 9.0)
    assert verdict({0: after(0, marks=7), 1: seen}, PATIENCE) is None
    found = verdict({0: after(0, marks=7), 1: seen.next(seen.beat, 1.0)}, PATIENCE)
    assert "has given no sign of life for 10 s" in found


@pytest.mark.parametrize("patience", [PATIENCE, TO_BEGIN_S + 5])
def test_who_never_begins_is_blamed_when_torch_had_time_to_load(patience):
    seen, limit = Seen(), int(max(patience, TO_BEGIN_S))
    for _ in range(limit - 1):
        seen = seen.next(None, 1.0)
    assert verdict({0: after(0), 1: seen}, patience) is None
    said = f"rank 1 has given no sign of life for {limit} s, and had not begun: it failed before, or raise --patience"
    assert verdict({0: after(0), 1: seen.next(None, 1.0)}, patience).startswith(said)


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


@pytest.fixture
def clock(monkeypatch):
    """The time of the processor, to be set by hand, and a pulse that nothing was done in yet."""
    clock = [0.0]
    monkeypatch.setattr(pulses, "pulse", Pulse())
    monkeypatch.setattr(pulses, "time", SimpleNamespace(process_time=lambda: clock[0]))
    return clock


def work(clock, kind, seconds, fails=False):
    """Do a work; return what the pulse said of it just before its end."""
    with familiar(*kind):
        clock[0] += seconds
        if fails:
            raise TypeError
        return pulses.pulse.working()


def test_a_work_is_familiar_when_one_of_its_kind_was_done_warm(clock):
    small, large = ("learn", (2, 3)), ("learn", (4, 3))
    for _ in range(WARM_UP):
        assert work(clock, small, 50.0) == (0.0, None)  # compiles, say
    assert work(clock, small, 1.0) == (0.0, None)
    assert work(clock, small, 3.0) == (3.0, 1.0)
    assert work(clock, small, 2.0) == (2.0, 3.0)
    assert work(clock, large, 9.0) == (0.0, None)
    assert work(clock, small, 2.0) == (2.0, 3.0)
    assert pulses.pulse.working() == (0.0, None)


def test_a_work_that_fails_does_not_count(clock):
    for _ in range(WARM_UP + 1):
        work(clock, "ab", 1.0)
    with pytest.raises(TypeError):
        work(clock, "ab", 100.0, fails=True)
    assert pulses.pulse.working() == (0.0, None)
    assert work(clock, "ab", 1.0) == (1.0, 1.0)


def test_while_torch_compiles_a_process_is_slow(clock):
    found = []
    pulses.compiling_is_slow()
    pulses.compiling_is_slow()  # again, which makes no difference

    def backend(graph, inputs):
        found.append(pulses.pulse.compiling)
        return graph.forward

    torch.compile(lambda x: x + 1, backend=backend)(torch.ones(3))
    assert found == [True]
    assert not pulses.pulse.compiling


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
