"""Timing on simulated GPUs: the simulated clock, exactly; provenance that says so; no mixture with the wall clock."""

import pytest
import torch

from d2lmini import sim, timing


@pytest.fixture
def gpus():
    sim.enable(2, gpu="V100-SXM2-16GB", link="PCIe3-x16", shapes_only=True)
    return [torch.device("sim", i) for i in range(2)]


def product(device):
    a = torch.ones(1024, 1024, device=device)
    return lambda: a @ a


def test_laps_are_simulated_seconds_the_same_every_time(gpus):
    work, laps = product(gpus[0]), []
    for _ in range(2):
        timer = timing.Timer(gpus)
        for _ in range(3):
            timer.start()
            work()
            timer.stop()
        laps += timer.times
    assert len({round(lap, 13) for lap in laps}) == 1
    with sim.trace() as trace:
        work()
        torch.sim.synchronize()
    assert laps[0] == pytest.approx(trace.seconds)
    assert timing.measure(work, repeat=6, devices=gpus).median == pytest.approx(laps[0])


def test_the_number_says_which_clock_it_is_from(gpus):
    assert timing.simulated(gpus)
    assert timing.simulated(["cpu", gpus[0]])
    assert timing.provenance(gpus) == "simulated on 2 × V100-SXM2-16GB, PCIe3-x16"
    assert not timing.simulated(["cpu"])
    assert timing.provenance(["cpu"]).startswith("measured on ")
    with pytest.raises(ValueError, match="got simulated and real ones: cuda, sim"):
        timing.simulated(["sim:0", "cuda:0"])


def test_without_the_simulated_clock_the_wall_clock_is_read():
    sim.enable(2, clock=False)
    assert not timing.simulated(["sim:0"])
    assert timing.provenance(["sim:0"]).startswith("measured on ")
    with pytest.raises(RuntimeError, match="without clock=False"):
        sim.now()
