"""Simulated GPUs next to real ones: what CUDA offers stays CUDA's. Runs only where there is a CUDA GPU."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from d2lmini import sim

pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
              pytest.mark.usefixtures("gpus")]  # fmt: skip


def test_pinned_memory_is_cudas():
    for pinned in (torch.ones(3).pin_memory(), torch.ones(3, pin_memory=True)):
        assert pinned.is_pinned()
        assert not hasattr(pinned.untyped_storage(), "_sim_pinned")
        assert pinned.to("cuda", non_blocking=True).tolist() == [1, 1, 1]
    assert not torch.ones(3).is_pinned()


def test_data_loader_pins():
    data = TensorDataset(torch.arange(10.0))
    batches = [batch for (batch,) in DataLoader(data, batch_size=4, pin_memory=True)]
    assert [batch.is_pinned() for batch in batches] == [True] * 3
    assert torch.cat(batches).tolist() == list(range(10))


def test_the_accelerator_is_cuda_unless_asked_otherwise():
    assert torch.accelerator.current_accelerator().type == "cuda"
    assert torch.accelerator.device_count() == torch.cuda.device_count()
    torch.accelerator.synchronize()
    sim.enable(4, clock=False, accelerator=True)
    assert torch.accelerator.current_accelerator().type == "sim"
    assert torch.accelerator.device_count() == 4


def test_both_kinds_in_one_process():
    real, ours = torch.arange(3.0, device="cuda"), torch.arange(3.0, device="sim:1")
    assert real.to("sim:1").tolist() == ours.to("cuda").tolist() == [0, 1, 2]
    assert (str(real.to("sim:1").device), ours.to("cuda").device.type) == ("sim:1", "cuda")
    with pytest.raises(RuntimeError, match="same device"):
        real + ours


def test_data_parallel_on_one_real_gpu():
    net = nn.Linear(3, 2).to("cuda:0")
    data = torch.ones(4, 3, device="cuda:0")
    assert torch.equal(nn.DataParallel(net, device_ids=[0])(data), net(data))
    assert torch.cuda.comm.broadcast(data, [0])[0].device == data.device
