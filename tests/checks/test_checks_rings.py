"""The exercises on all-reduce: their scores are the simulated clock's, and the reader's machine comes back."""

import contextlib

import numpy as np
import pytest
import torch

import simgpu
from d2lmini import checks
from d2lmini.collectives.schedules import Send
from simgpu.hardware import machines


def ring_mean(tensors, streets=lambda ring: ring, cut=torch.tensor_split):
    size = len(tensors)
    chunks = [cut(tensor, size) for tensor in tensors]
    ring = streets([(rank, (rank + 1) % size) for rank in range(size)])
    for t in range(size - 1):
        for here, there in ring:
            chunks[there][(here - t) % size].add_(chunks[here][(here - t) % size].to(tensors[there].device))
    for t in range(size - 1):
        for here, there in ring:
            chunks[there][(here + 1 - t) % size].copy_(chunks[here][(here + 1 - t) % size])
    for tensor in tensors:
        tensor /= size


def score(answer):
    verdict = checks.ring_mean(answer)
    assert verdict, verdict.sentence
    return float(verdict.sentence.partition("4 MiB on each rank: ")[2].partition(" ms")[0])


def test_the_order_of_the_copies_decides_the_score():
    """In order, no two copies of a step run at the same time: nine times the bound of 0.58 ms."""
    simgpu.disable()
    assert score(ring_mean) == pytest.approx(5.5, abs=0.05)
    every_second = score(lambda tensors: ring_mean(tensors, lambda ring: ring[::2] + ring[1::2]))
    assert every_second == pytest.approx(1.4, abs=0.05)
    assert not simgpu.is_enabled()


def test_memory_of_the_reader_is_not_scored():
    simgpu.enable(machine="8xH200")
    mine = torch.ones(10**6, device="sim:0")
    assert "0.50 MiB beside the buffer, one chunk is 0.50 MiB" in checks.ring_mean(ring_mean).sentence
    assert simgpu.machine().name == "8xH200"
    assert (mine == 1).all()


def test_a_wrong_answer_that_keeps_tensors_does_not_hide_the_fault():
    kept = []
    told = checks.ring_mean(lambda tensors: kept.extend(tensors)).sentence
    assert "rank 0's element 0 should be 5.5, it is 1 (what rank 0 held at first)" in told
    kept.clear()
    simgpu.disable()


@pytest.mark.parametrize("fault", [KeyboardInterrupt, ValueError])
def test_the_readers_machine_comes_back_after_a_fault(fault):
    def stopped(tensors):
        mine = tensors[0] + 1
        raise fault(len(mine))

    simgpu.enable(machine="8xH200")
    with contextlib.suppress(KeyboardInterrupt):
        checks.ring_mean(stopped)
    assert simgpu.machine().name == "8xH200"


def doubling(world_size, far_first=False, number=int):
    distances = [2**k for k in range(world_size.bit_length() - 1)]
    pairs = [[(r, r ^ d) for r in range(world_size)] for d in (distances[::-1] if far_first else distances)]
    return tuple([Send(number(a), number(b), 0, 1, "reduce") for a, b in step] for step in pairs)


def test_the_steps_are_scored_beside_tree_and_ring():
    line = checks.recursive_doubling(doubling).sentence
    assert "16 µs, three messages in a row take 7 µs (tree 23 µs, ring 49 µs)" in line
    assert machines.MACHINES["8xH200"].name in line


def test_ranks_that_add_in_different_orders_are_told_so():
    def around(world_size):
        distances = [2**k for k in range(world_size.bit_length() - 1)]
        return [[Send(r, (r + d) % world_size, 0, 1, "reduce") for r in range(world_size)] for d in distances]

    assert "4 ranks: ranks 0 and 1 add up in different orders" in checks.recursive_doubling(around).sentence


def test_ranks_that_are_no_numbers_are_told():
    line = checks.recursive_doubling(lambda world_size: doubling(world_size, number=str)).sentence
    assert line.startswith("2 ranks: ")


def chunks_of_ceil_size(tensor, size):
    length = -(-len(tensor) // size)
    return [tensor[i * length : (i + 1) * length] for i in range(size)]


def half_rings_in_opposite_directions(tensors):
    middle = len(tensors[0]) // 2
    ring_mean([tensor[:middle] for tensor in tensors])
    ring_mean([tensor[middle:] for tensor in tensors][::-1])


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.recursive_doubling, lambda world_size: doubling(world_size, far_first=True, number=np.int64)),
        (checks.recursive_doubling, lambda world_size: map(set, doubling(world_size))),
        (checks.recursive_doubling, lambda world_size: tuple(map(frozenset, doubling(world_size)))),
        (
            checks.recursive_doubling,
            lambda size: ({send.src: send for send in step}.values() for step in doubling(size)),
        ),
        (checks.ring_mean, lambda tensors: ring_mean(tensors[::-1], cut=chunks_of_ceil_size)),
        (checks.ring_mean, half_rings_in_opposite_directions),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)
