"""All-reduce between processes by messages: right to the bit, and no hang on a mistake."""

import time

import pytest
import reducing_ranks as ranks
import torch

from d2lmini.collectives import on_devices, schedules
from d2lmini.distributed import RankError, run

pytestmark = pytest.mark.process


@pytest.mark.parametrize("nprocs", [1, 3, 4])
def test_messages_agree_with_gloo_for_every_algorithm_length_and_type(nprocs):
    run(ranks.by_messages, nprocs, timeout=300)


@pytest.mark.parametrize(("nprocs", "n"), [(2, 300_007), (3, 300_007), (4, 1001)])
def test_processes_and_devices_get_the_same_bits_from_every_schedule(nprocs, n):
    results = run(ranks.schedules_of_all_kinds, nprocs, n, timeout=300)
    for schedule in ranks.every_schedule(nprocs):
        inside = ranks.numbers(n, nprocs)
        on_devices.run(schedule, inside)
        for rank, tensor in enumerate(inside):
            for result in results[rank][schedule.name]:
                assert torch.equal(result, tensor), f"{schedule.name}, rank {rank}"


def test_what_cannot_be_reduced_is_refused():
    for said in run(ranks.refused, 2):
        words = ["on meta", "the schedule is for 3 ranks", "algorithm 'star'"]
        assert all(word in line for word, line in zip(words, said, strict=True)), said


DISAGREEMENTS = {
    "another shape": "ring of [5] float32",
    "another order": "ring of [2, 3] float32",
}


@pytest.mark.parametrize("how", DISAGREEMENTS)
def test_ranks_that_disagree_are_named(how):
    began = time.monotonic()
    with pytest.raises(RankError) as caught:
        run(ranks.disagree, 3, how, False, 300.0, timeout=300)
    told = f"ranks 0, 1 ring of [4] float32; rank 2 {DISAGREEMENTS[how]}"
    assert f"raised ValueError: the ranks disagree in call 0: {told}" in str(caught.value)
    assert time.monotonic() - began < 200  # no rank waited in vain


def test_ranks_that_disagree_are_named_though_no_kind_of_call_is_new():
    with pytest.raises(RankError, match=r"the ranks disagree in call 4: ranks 0, 1 .*; rank 2 ring of \[2, 3\]"):
        run(ranks.disagree, 3, "another order", True, 3.0)


@pytest.mark.parametrize(("known", "told"), [
    (False, r"TimeoutError: call 0 \(ring of \[4\] float32\) waited 3 s for rank 2"),
    (True, r"LostRankError: call 4 \(ring of \[4\] float32\): rank \d (timed out .*|lost) rank 2"),
])  # fmt: skip
def test_a_rank_that_is_missing_is_named(known, told):
    with pytest.raises(RankError, match=told):
        run(ranks.disagree, 3, "missing", known, 3.0)


def test_schedules_of_one_name_are_told_apart():
    marks = [f"{schedules.broadcast(2, root).mark:08x}" for root in (0, 1)]
    told = "; ".join(rf"rank {rank} broadcast {mark} of \[3\] float32" for rank, mark in enumerate(marks))
    with pytest.raises(RankError, match=told):
        run(ranks.other_roots, 2)
