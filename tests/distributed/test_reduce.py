"""All-reduce between processes by messages: right to the bit, and no hang on a mistake."""

import pytest
import reducing_ranks as ranks

from d2lmini.collectives import on_devices, schedules
from d2lmini.distributed import RankError, run

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("nprocs", "n"), [(1, 17), pytest.param(2, 300_007, marks=pytest.mark.long), (3, 300_007), (4, 1001)]
)
def test_every_sum_is_gloos_and_every_schedule_gives_the_bits_that_it_gives_between_devices(nprocs, n):
    results = run(ranks.everything, nprocs, n, timeout=300)
    for schedule in ranks.every_schedule(nprocs):
        inside = ranks.numbers(n, nprocs)
        on_devices.run(schedule, inside)
        for rank, tensor in enumerate(inside):
            assert set(results[rank][schedule.name]) == {ranks.digest(tensor)}, f"{schedule.name}, rank {rank}"


def test_what_cannot_be_reduced_is_refused_and_ranks_that_disagree_are_named():
    marks = [f"{schedules.broadcast(3, root).mark:08x}" for root in range(3)]
    words = [
        "on meta",
        "the schedule is for 2 ranks",
        "algorithm 'star'",
        "call 0: ranks 0, 1 ring of [4] float32; rank 2 ring of [5] float32",
        "; ".join(f"rank {rank} broadcast {mark} of [3] float32" for rank, mark in enumerate(marks)),
    ]
    for said in run(ranks.refused, 3):
        assert all(word in line for word, line in zip(words, said, strict=True)), said


@pytest.mark.parametrize(
    ("how", "known", "told"),
    [
        ("another order", True, r"disagree in call 2: ranks 0, 1 .*; rank 2 ring of \[2, 3\]"),
        ("missing", False, r"TimeoutError: call 0 \(ring of \[4\] float32\) waited 3 s for rank 2"),
        ("missing", True, r"LostRankError: call 2 \(ring of \[4\] float32\): rank \d (timed out .*|lost) rank 2"),
    ],
)
def test_a_rank_that_disagrees_or_is_missing_is_named_also_where_no_kind_of_call_is_new(how, known, told):
    with pytest.raises(RankError, match=told):
        run(ranks.disagree, 3, how, known)
