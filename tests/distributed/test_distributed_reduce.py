"""All-reduce between processes, by messages and through shared memory: right to the bit, and no hang on a mistake."""

import sys
import time

import distributed_ranks as ranks
import pytest
import rank_functions as examples
import torch

from d2lmini.collectives import on_devices, schedules
from d2lmini.distributed import RankError, run

linux = pytest.mark.skipif(sys.platform != "linux", reason="shared memory without a name is Linux's")


@pytest.mark.parametrize("nprocs", [1, 2, 3, 4])
def test_messages_agree_with_gloo_for_every_schedule_length_type_and_op(nprocs):
    run(ranks.by_messages, nprocs, (64, 1024 * 1024))


@pytest.mark.parametrize("nprocs", [2, 3, 4])
def test_processes_and_devices_get_the_same_bits_from_every_schedule(nprocs):
    torch.manual_seed(nprocs)
    tensors = [torch.randn(1001) for _ in range(nprocs)]
    results = run(ranks.schedules_of_all_kinds, nprocs, tensors, 256)
    for schedule in ranks.every_schedule(nprocs):
        inside = [tensor.clone() for tensor in tensors]
        on_devices.run(schedule, inside)
        for rank, tensor in enumerate(inside):
            assert torch.equal(results[rank][schedule.name], tensor), f"{schedule.name}, rank {rank}"


@pytest.mark.parametrize("nprocs", [1, 2, 3, 4])
@pytest.mark.parametrize("block", [64, 1024 * 1024])
def test_shared_memory_agrees_with_gloo_for_every_length_type_and_op(nprocs, block):
    for counts in run(ranks.through_memory, nprocs, block):
        assert counts == [1001, 0, 0]  # elements with and without a buffer; nothing with a name


def test_shared_memory_works_where_the_processor_keeps_no_order():
    run(ranks.without_order, 3)


def test_what_cannot_be_reduced_is_refused():
    for said in run(ranks.refused, 2):
        kinds = [
            "unknown op 'sums': choose one of sum, product, min, max, mean",
            "a mean needs a floating-point type, got torch.int64",
            "processes exchange CPU tensors, got one on meta",
        ]
        assert said[:6] == kinds * 2
        assert said[6] == "the schedule is for 3 ranks, and there are 2"
        assert said[7].startswith("unknown algorithm 'star': choose one of naive, tree, ring, halving-doubling")


DISAGREEMENTS = {
    "another shape": "rank 2 {name}, sum of [5] float32",
    "another type": "rank 2 {name}, sum of [4] float64",
    "another order": "rank 2 {name}, sum of [2, 3] float32",
}


@pytest.mark.parametrize("way", ["messages", "shared"])
@pytest.mark.parametrize("how", DISAGREEMENTS)
def test_ranks_that_disagree_are_named(how, way):
    name, call, began = ("ring", 0, time.monotonic()) if way == "messages" else ("shared memory", 1, time.monotonic())
    with pytest.raises(RankError) as caught:
        run(examples.disagree, 3, how, way, 100.0)  # seconds: more than the run may take, so no rank waited in vain
    most = f"ranks 0, 1 {name}, sum of [4] float32"
    told = f"raised ValueError: the ranks disagree in call {call}: {most}; {DISAGREEMENTS[how].format(name=name)}"
    assert str(caught.value) == f"rank 0 of 3 {told}"
    assert time.monotonic() - began < 30


@pytest.mark.parametrize(("way", "told"), [
    ("messages", r"TimeoutError: call 0 \(ring, sum of \[4\] float32\) waited 1 s for rank 2$"),
    ("shared", "ConnectionError: rank 0 lost rank 2, which has ended or let the memory go$"),
])  # fmt: skip
def test_a_rank_that_is_missing_is_named(way, told):
    began = time.monotonic()
    with pytest.raises(RankError, match="rank 0 of 3 raised " + told) as caught:
        run(examples.disagree, 3, "missing", way, 1.0)
    assert caught.value.rank == 0
    assert time.monotonic() - began < 30


def test_another_order_is_noticed_though_all_kinds_of_call_were_checked_before():
    told = r"disagree in call 2: rank 0 ring, sum of \[3\] float32; rank 1 ring, sum of \[4\] float32"
    with pytest.raises(RankError, match=told):
        run(ranks.forget, 2)


@pytest.mark.parametrize("known", [False, True])
def test_schedules_of_one_name_are_told_apart(known):
    marks = [f"{schedules.broadcast(2, root).mark:08x}" for root in (0, 1)]
    do = [rf"rank {rank} broadcast, sum of \[3\] float32 \({mark}\)" for rank, mark in enumerate(marks)]
    told = rf"disagree in call {2 * known}: {'; '.join(do)}; one name, but not one schedule: another root\?$"
    began = time.monotonic()
    with pytest.raises(RankError, match=told):
        run(ranks.other_roots, 2, known)
    assert time.monotonic() - began < 30


def test_examples_reduce_what_they_are_given():
    tensors = [torch.arange(5) + 10**rank for rank in range(3)]
    tree = schedules.allreduce_tree(3)
    for result in run(examples.shared, 3, tensors) + run(examples.execute, 3, tree, tensors):
        assert torch.equal(result, sum(tensors))
    assert run(examples.disagree, 2, "fine", "gloo")[0].tolist() == [[2.0] * 3] * 2
