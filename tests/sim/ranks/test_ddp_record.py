"""What DDP records of a model: times by the simulated clock, as between a program's own events; under gloo, gloo's."""

from itertools import pairwise

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import simgpu

NAMES = ["forward_compute_time", "backward_compute_time", "backward_comm_time", "backward_compute_comm_overlap_time"]


def test_logged_times_are_those_between_events():
    steps = 13

    def run(rank):
        model = nn.Sequential(*[nn.Linear(512, 512) for _ in range(2)]).to("sim")
        model = DistributedDataParallel(model, bucket_cap_mb=1, gradient_as_bucket_view=True)
        model._set_ddp_runtime_logging_sample_rate(11)
        logged, events = [], []
        for step in range(steps):
            x = torch.ones(64 * (step + 1), 512, device="sim")
            marks = [torch.sim.Event(enable_timing=True) for _ in range(3)]
            marks[0].record()
            y = model(x)
            marks[1].record()
            y.sum().backward()
            marks[2].record()
            events.append(marks)
            logged.append(model._get_ddp_logging_data())
        torch.sim.synchronize()
        return logged, [[round(a.elapsed_time(b) * 1e6) for a, b in pairwise(marks)] for marks in events]

    simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2", shapes_only=True)
    for logged, events in simgpu.spawn(run):
        assert [data["iteration"] for data in logged] == [0, *range(1, 12), 11]
        assert not any(logged[0].get(name) for name in NAMES)
        averages = [0] * 4
        for step in range(1, 12):
            forward, backward, sent, both = (logged[step][name] for name in NAMES)
            assert forward == pytest.approx(events[step - 1][0], rel=0.01)
            whole = logged[step]["backward_comm_time_end"] - logged[step]["backward_compute_time_start"]
            assert max(both, 1) <= min(backward, sent) <= max(backward, sent) <= whole <= events[step - 1][1] + 1
            assert whole == pytest.approx(events[step - 1][1], rel=0.15)
            averages = [(t + a * (step - 1)) // step for t, a in zip((forward, backward, sent, both), averages)]
            assert [logged[step][f"avg_{name}"] for name in NAMES] == averages
        assert logged[12] == logged[11]


def test_under_gloo_the_record_is_that_of_a_real_group(tmp_path):
    def record():
        model = DistributedDataParallel(nn.Linear(3, 2))
        model(torch.ones(1, 3)).sum().backward()
        data = model._get_ddp_logging_data()
        return {name: value for name, value in data.items() if "time" not in name and name != "master_port"}

    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    real = record()
    dist.destroy_process_group()

    def run(rank):
        dist.init_process_group("gloo")
        found = record()
        assert dist.get_backend() == "gloo"
        return found

    simgpu.enable(1)
    (found,) = simgpu.spawn(run)
    with simgpu.as_cuda():
        assert simgpu.spawn(run) == [found]
    assert found | {"master_addr": "N/A"} == real | {"master_addr": "N/A"}
