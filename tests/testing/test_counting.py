"""The counts agree with formulas, and a check that fails says what came."""

import pytest
import torch
import torch.distributed as dist

from d2lmini import sim, testing


@pytest.fixture(params=["V100-SXM2-16GB", "GTX 1080"])  # joined by NVLink; through the host
def four(request):
    sim.enable(4, gpu=request.param)
    yield
    sim.disable()


def two_collectives(rank):
    dist.all_reduce(torch.ones(256, device="sim"))
    dist.broadcast(torch.ones(256, device="sim"), 0)


@pytest.mark.usefixtures("four")
def test_bytes_and_collectives_of_ranks():
    with testing.costs() as costs:
        sim.spawn(two_collectives)
    costs.check(collectives=2, bytes_sent=2 * 3 * 1024 + 3 * 1024)


@pytest.mark.usefixtures("four")
def test_one_rank_cannot_count_for_all():
    def run(rank):
        with testing.costs():
            dist.barrier()

    with pytest.raises(sim.RankError, match=r"costs\(\) around sim\.spawn"):
        sim.spawn(run)


@pytest.mark.usefixtures("four")
def test_messages_are_bytes_and_no_collective():
    def run(rank):
        if rank == 0:
            dist.send(torch.ones(256, device="sim"), 3)
        elif rank == 3:
            dist.recv(torch.ones(256, device="sim"), 0)

    with testing.costs() as costs:
        sim.spawn(run)
    costs.check(collectives=0, bytes_sent=1024)


@pytest.mark.usefixtures("four")
def test_a_copy_between_gpus_is_counted_once_and_one_to_the_host_not():
    x = torch.ones(256, device="sim:1")
    with testing.costs() as costs:
        x.to("sim:3").cpu()
    costs.check(bytes_sent=1024, collectives=0, host_waits=1)


@pytest.mark.usefixtures("four")
def test_memory_and_time_are_those_of_the_device():
    kept = torch.ones(1024, device="sim:1")
    with testing.costs() as costs:
        begin = sim.now()
        torch.ones(2048, device="sim:1") + 1
        torch.sim.synchronize(1)
        took = sim.now() - begin
    assert costs.peak_bytes == kept.nbytes + 2 * 2048 * 4
    assert costs.seconds == pytest.approx(took)
    costs.check(peak_bytes=costs.peak_bytes, seconds=costs.seconds)


@pytest.mark.usefixtures("four")
@pytest.mark.parametrize(("limits", "word"), [
    ({"host_waits": 0}, "gpu1→host"), ({"bytes_sent": 0}, "1,024"), ({"collectives": 1}, "collectives"),
    ({"peak_bytes": 1023}, "in use"), ({"seconds": 0.0}, "seconds"),
])  # fmt: skip
def test_a_check_that_fails_says_what_came(limits, word):
    with testing.costs() as costs:
        torch.ones(256, device="sim:0").to("sim:1").sum().item()
    with pytest.raises(AssertionError, match=word):
        costs.check(**limits)
    costs.check(host_waits=1, bytes_sent=1024, collectives=0)


@pytest.mark.usefixtures("four")
def test_a_check_before_the_end_is_refused():
    with testing.costs() as costs, pytest.raises(RuntimeError, match="after"):
        costs.check(host_waits=0)


def test_without_simulated_gpus_nothing_is_counted():
    with pytest.raises(RuntimeError, match="enable"), testing.costs():
        pass
