"""Two real processes with simulated GPUs, over gloo: the same programs as on simulated ranks."""

import os
import sys
import warnings
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
import torch.multiprocessing

import simgpu

NAMES = [
    "DDP",
    "DDP, find_unused_parameters",
    "DDP, static_graph",
    "ZeroRedundancyOptimizer",
    "DTensor",
    "parallelize_module",
    "pipelining, 1F1B",
]


def run(rank, folder):
    """Run the cases as rank `rank` of two, and save what is to be compared and the simulated seconds."""
    warnings.simplefilter("ignore")
    sys.path.insert(0, str(Path(__file__).parent))
    import cases

    simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2")
    torch.sim.set_device(rank)
    dist.init_process_group("gloo", init_method=f"file://{folder}/store", rank=rank, world_size=2)
    found = {}
    for case in cases.CASES:
        if case.name in NAMES:
            begin = simgpu.now()
            results = [t.detach().cpu() for t in case.run(rank)]
            found[case.name] = results, simgpu.now() - begin
    torch.save(found, f"{folder}/{rank}.pt")
    dist.barrier()
    dist.destroy_process_group()
    os._exit(0)  # while an interpreter ends, gloo's threads may let go of tensors, and abort it (pytorch#179291)


@pytest.mark.process
def test_two_processes_equal_one(tmp_path, capfd):
    import cases

    torch.multiprocessing.spawn(run, (str(tmp_path),), 2)
    assert "Time stats" not in capfd.readouterr().err  # what DDP says of devices that it does not know
    for found in (torch.load(tmp_path / f"{rank}.pt") for rank in range(2)):
        assert set(found) == set(NAMES)
        for case in cases.CASES:
            if case.name in NAMES:
                results, seconds = found[case.name]
                wanted = [t.detach() for t in case.alone()]
                torch.testing.assert_close(results, wanted, rtol=case.tolerance, atol=case.tolerance)
                assert seconds > 0


def test_a_message_over_gloo_takes_the_time_of_a_message(tmp_path):
    """One process is a group too: what it sends itself takes no time, and is no kernel."""
    simgpu.enable(2, gpu="V100-SXM2-16GB", link="NVLink2")
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/store", rank=0, world_size=1)
    try:
        tensor = torch.ones(2**20, device="sim")
        with simgpu.trace() as trace:
            dist.all_reduce(tensor)
        assert not [span for span in trace.spans if span.kind == "operation"]
        assert tensor.sum() == 2**20
    finally:
        dist.destroy_process_group()
