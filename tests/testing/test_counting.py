"""The counts agree with formulas, and a check that fails says what came."""

import pytest
import torch
import torch.distributed as dist

import simgpu
from simgpu import testing


@pytest.fixture(params=["V100-SXM2-16GB", "GTX 1080"], autouse=True)  # joined by NVLink; through the host
def four(request):
    simgpu.enable(4, gpu=request.param)
    yield
    simgpu.disable()


def two_collectives(rank):
    dist.all_reduce(torch.ones(256, device="sim"))
    dist.broadcast(torch.ones(256, device="sim"), 0)


def a_message(rank):
    x = torch.ones(256, device="sim")
    {0: lambda: dist.send(x, 3), 3: lambda: dist.recv(x, 0)}.get(rank, bool)()


@pytest.mark.parametrize(("run", "collectives", "nbytes"), [(two_collectives, 2, 9 * 1024), (a_message, 0, 1024)])
def test_bytes_and_collectives_of_ranks(run, collectives, nbytes):
    with testing.costs() as costs:
        simgpu.spawn(run)
    costs.check(collectives=collectives, bytes_sent=nbytes)


def test_one_rank_cannot_count_for_all():
    def run(rank):
        with testing.costs():
            dist.barrier()

    with pytest.raises(simgpu.RankError, match=r"costs\(\) around simgpu\.spawn"):
        simgpu.spawn(run)


def test_a_copy_between_gpus_is_counted_once_and_one_to_the_host_not():
    x = torch.ones(256, device="sim:1")
    with testing.costs() as costs:
        x.to("sim:3").cpu()
    costs.check(bytes_sent=1024, collectives=0, host_waits=1)


def test_memory_and_time_are_those_of_the_device():
    kept = torch.ones(1024, device="sim:1")
    with testing.costs() as costs:
        begin = simgpu.now()
        torch.ones(2048, device="sim:1") + 1
        torch.sim.synchronize(1)
        took = simgpu.now() - begin
    assert (costs.peak_bytes, costs.seconds) == (kept.nbytes + 2 * 2048 * 4, pytest.approx(took))
    costs.check(peak_bytes=costs.peak_bytes, seconds=costs.seconds)


@pytest.mark.parametrize(
    ("limits", "word"),
    [
        ({"host_waits": 0}, "gpu1→host"),
        ({"bytes_sent": 0}, "1,024"),
        ({"collectives": 1}, "collectives"),
        ({"peak_bytes": 1023}, "in use"),
        ({"seconds": 0.0}, "seconds"),
    ],
)
def test_a_check_that_fails_says_what_came(limits, word):
    with testing.costs() as costs:
        torch.ones(256, device="sim:0").to("sim:1").sum().item()
    with pytest.raises(AssertionError, match=word):
        costs.check(**limits)
    costs.check(host_waits=1, bytes_sent=1024, collectives=0)


def test_a_check_before_the_end_is_refused():
    with testing.costs() as costs, pytest.raises(RuntimeError, match="after"):
        costs.check(host_waits=0)


def test_without_simulated_gpus_nothing_is_counted():
    simgpu.disable()
    with pytest.raises(RuntimeError, match="enable"), testing.costs():
        pass
