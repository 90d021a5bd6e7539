"""Timeouts that a program gives: the rank that waits in vain is told when its simulated time is over, and may go on."""

import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import simgpu


def raised(call, *args, **options):
    """Return the message of a call's RuntimeError and the simulated seconds until it came."""
    began = simgpu.now()
    with pytest.raises(RuntimeError) as error:
        call(*args, **options)
    return str(error.value), round(simgpu.now() - began, 3)


@pytest.mark.parametrize(("everybody", "named"), [(False, "Rank 1 failed"), (True, "Ranks 1, 3 failed")])
def test_a_monitored_barrier_names_who_does_not_come(gpus, everybody, named):
    def run(rank):
        dist.init_process_group("gloo")
        found = None
        if rank in (0, 2):
            found = raised(dist.monitored_barrier, timeout=timedelta(seconds=2), wait_all_ranks=everybody)
            assert "ends the group" in raised(dist.barrier)[0]
        dist.barrier(group=dist.new_group(backend="gloo"))  # other groups are as before
        return found

    first, _, third, _ = simgpu.spawn(run)
    assert first[0].startswith(f"{named} to pass monitoredBarrier in 2000 ms")
    assert third[0].startswith("Rank 2 successfully reached monitoredBarrier")
    assert first[1] == third[1] == 2


@pytest.mark.parametrize("asleep", [False, True])
def test_a_group_of_gloos_waits_as_long_as_it_was_told(gpus, asleep):
    def run(rank):
        group = dist.new_group(backend="gloo", timeout=timedelta(seconds=5))
        store = dist.TCPStore("localhost", 1234, 2, rank == 0)
        if rank == 1:
            while asleep and not store.check(["over"]):
                time.sleep(1)
            return None
        found = raised(dist.all_reduce, torch.ones(1), group=group)
        store.set("over", "")
        return found

    told, seconds = simgpu.spawn(run, nprocs=2)[0]
    assert "Timed out waiting 5000ms" in told
    assert "not called by rank 1" in told
    assert seconds == 5


@pytest.mark.parametrize("late", [4.5, 5.5])
def test_a_rank_is_waited_for_that_comes_in_time(gpus, late):
    def run(rank):
        groups = [dist.new_group(ranks, timedelta(seconds=5), "gloo") for ranks in ([0, 1], [2, 3])]
        if rank:
            time.sleep(late if rank == 1 else 9)
        x = torch.ones(1)
        if rank < 2 and late > 5:
            return raised(dist.all_reduce, x, group=groups[0])[0]
        dist.all_reduce(x, group=groups[rank // 2])
        return x.item()

    first, second, *others = simgpu.spawn(run)
    assert others == [2, 2]
    assert first == second == 2 if late < 5 else ("Timed out" in first and "closed by peer" in second)


def test_a_wait_of_nccls_and_one_for_a_key_end_when_their_time_is_over(gpus):
    def run(rank):
        store = dist.TCPStore("localhost", 1234, 2, rank == 0)
        keys = raised(store.wait, ["never"], timedelta(milliseconds=300))
        if rank == 0:
            return keys
        work = dist.all_reduce(torch.ones(1, device="sim"), async_op=True)
        return keys, raised(work.wait, timedelta(milliseconds=100))

    keys, (again, late) = simgpu.spawn(run, nprocs=2)
    assert all(told.startswith("wait timeout after 300ms") for told, _ in (keys, again))
    assert "caught collective operation timeout" in late[0]
    assert (keys[1], again[1], late[1]) == (0.3, 0.3, 0.1)


def test_who_does_not_catch_it_is_told_of_a_deadlock(gpus):
    def run(rank):
        if rank == 0:
            dist.monitored_barrier(timeout=timedelta(seconds=1))

    with pytest.raises(simgpu.DeadlockError, match="Rank 1 failed"):
        simgpu.spawn(run, nprocs=2)
