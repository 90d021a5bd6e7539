"""torch.profiler shows what simulated GPUs did beside what the host did, and says nothing else."""

import json

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule

import simgpu


@pytest.fixture(autouse=True)
def _gpus():
    simgpu.enable(2, gpu="A100-SXM4-80GB")


def run(x):
    return (x @ x).relu().sum().item()


def on_gpus(events):
    return [event for event in events if event.device_type == DeviceType.PrivateUse1]


@pytest.mark.parametrize(
    "make",
    [
        profile,
        lambda: profile(activities=[ProfilerActivity.PrivateUse1]),
        lambda: torch.autograd.profiler.profile(use_device="sim"),
    ],
)
def test_operations_of_a_gpu_are_events_of_simulated_length(make, capfd):
    x = torch.ones(64, 64, device="sim:1")
    with simgpu.trace() as trace, make() as profiler:
        run(x)
    averages = profiler.key_averages()
    events = on_gpus(profiler.events() if hasattr(profiler, "events") else profiler.function_events)
    assert [event.name for event in events] == ["mm", "relu", "sum"]
    assert {event.device_index for event in events} == {1}
    assert sum(event.time_range.elapsed_us() for event in events) == pytest.approx(trace.busy_seconds()["gpu1"] * 1e6)
    assert "Self SIM" in averages.table()
    assert "Exception" not in capfd.readouterr().err


def test_each_cycle_has_its_own_events_and_the_host_alone_none():
    x, cycles = torch.ones(8, 8, device="sim"), []
    cycle = schedule(wait=1, warmup=1, active=2, repeat=2)
    with profile(schedule=cycle, on_trace_ready=lambda p: cycles.append(len(on_gpus(p.events())))) as profiler:
        for _ in range(9):
            run(x)
            profiler.step()
    assert cycles == [6, 6]
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run(x)
    assert not on_gpus(profiler.events())
    simgpu.enable(2, clock=False)
    with profile() as profiler:
        run(x)
    assert not on_gpus(profiler.events())


def test_under_cudas_name_the_columns_are_cudas():
    with simgpu.as_cuda():
        x = torch.ones(64, 64, device="cuda")
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as profiler:
            run(x)
        table = profiler.key_averages().table(sort_by="cuda_time_total")
        assert [event.name for event in profiler.events() if event.device_type == DeviceType.CUDA] == [
            "mm",
            "relu",
            "sum",
        ]
    assert "CUDA total" in table
    assert "SIM" not in table


def test_every_rank_may_profile_and_sees_its_own_gpu(tmp_path):
    def on_rank(rank):
        x, files = torch.ones(64 * (rank + 1), 64 * (rank + 1), device="sim"), []
        for cycle in range(2):
            with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as profiler:
                run(x)
                torch.distributed.barrier()
            files.append(tmp_path / f"{rank} {cycle}.json")
            profiler.export_chrome_trace(str(files[-1]))
        assert all(json.loads(file.read_text())["traceEvents"] for file in files)
        events = on_gpus(profiler.events())
        assert "mm" in profiler.key_averages().table()
        return [event.name for event in events][:3], {event.device_index for event in events}

    assert simgpu.spawn(on_rank) == [(["mm", "relu", "sum"], {rank}) for rank in range(2)]
