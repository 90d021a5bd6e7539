"""simgpu smi, machines, doctor."""

import re

import torch
import torch.distributed as dist

import simgpu
from simgpu.__main__ import main


def test_smi_shows_memory_ranks_and_utilisation():
    simgpu.enable(2, gpu="A100-SXM4-40GB")
    x = torch.ones(2**20, device="sim:1")
    first = simgpu.smi()
    assert re.search(r"\| 1 +\| A100-SXM4-40GB +\| 4MiB / 40960MiB +\| N/A", first)
    assert "GPU 1  this program  4MiB" in first
    for _ in range(100):
        x = x + 1
    torch.sim.synchronize()
    simgpu.clock().advance(simgpu.now())
    shares = re.findall(r"(\d+)% ", simgpu.smi())
    assert shares[0] == "0"
    assert 1 < int(shares[1]) <= 50
    del x

    def run(rank):
        y = torch.ones(2**20 * (rank + 1), device="sim")
        dist.barrier()
        told = simgpu.smi()
        dist.barrier()  # so that no rank has ended
        return told, y.sum().item()

    told = simgpu.spawn(run)[0][0]
    assert "GPU 0  rank 0  4MiB" in told
    assert "GPU 1  rank 1  8MiB" in told
    assert "none hold memory" in simgpu.smi()


def test_machines_and_doctor(capsys):
    assert main(["machines"]) == 0
    assert "DGX-H100" in capsys.readouterr().out
    assert main(["doctor"]) == 0
    assert torch.__version__ in capsys.readouterr().out
    assert main(["smi", "--machine", "DGX-A100", "--memory", "1GiB"]) == 0
    assert capsys.readouterr().out.count("0MiB / 1024MiB") == 8
    assert main(["nothing"]) == 2
