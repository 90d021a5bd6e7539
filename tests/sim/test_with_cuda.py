"""Simulated GPUs next to real ones: what CUDA offers stays CUDA's. Runs only where there is a CUDA GPU."""

import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import simgpu

pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs CUDA"),
    pytest.mark.usefixtures("gpus"),
]


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
    simgpu.enable(4, clock=False, accelerator=True)
    assert torch.accelerator.current_accelerator().type == "sim"
    assert torch.accelerator.device_count() == 4


def test_both_kinds_in_one_process():
    real, ours = torch.arange(3.0, device="cuda"), torch.arange(3.0, device="sim:1")
    assert real.to("sim:1").tolist() == ours.to("cuda").tolist() == [0, 1, 2]
    assert (str(real.to("sim:1").device), ours.to("cuda").device.type) == ("sim:1", "cuda")
    with pytest.raises(RuntimeError, match="same device"):
        real + ours


def test_the_clock_counts_a_copy_from_a_real_gpu_as_one_from_the_host():
    simgpu.enable(1)
    real = torch.ones(2**20, device="cuda")
    with simgpu.trace() as trace:
        ours = real.to("sim:0")
        back = ours.to("cuda")
    assert [span.nbytes for span in trace.spans if span.kind == "copy"] == [2**22] * 2
    assert back.sum().item() == 2**20


def test_numbers_reach_the_host():
    """The ways in which torch's own CUDA code asks for pinned memory, or for the accelerator."""
    x = torch.arange(5.0, device="cuda")
    assert (x[3].item(), bool(x.any()), int(x.argmax())) == (3, True, 4)
    assert x.nonzero().flatten().tolist() == x[x > 0].tolist() == [1, 2, 3, 4]
    assert (x.to("cpu", non_blocking=True), torch.cuda.synchronize())[0].tolist() == [0, 1, 2, 3, 4]


def test_backward_runs_in_the_stream_of_forward():
    side, big = torch.cuda.Stream(), torch.ones(3000, 3000, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        product = big
        for _ in range(20):
            product = product @ big.detach() / 3000
        product.sum().backward()
    torch.cuda.current_stream().wait_stream(side)
    assert torch.allclose(big.grad, torch.full_like(big, 1.0), rtol=1e-3)


def test_random_numbers_of_both_kinds():
    torch.manual_seed(0)
    first = torch.rand(3, device="cuda"), torch.rand(3, device="sim:0").cpu()
    torch.manual_seed(0)
    again = torch.rand(3, device="cuda"), torch.rand(3, device="sim:0").cpu()
    assert all(map(torch.equal, first, again))


def test_autocast_of_both_kinds():
    for device in ("cuda", "sim:0"):
        x = torch.ones(2, 2, device=device)
        with torch.autocast(device.partition(":")[0], dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        assert (x @ x).dtype == torch.float32


def test_data_parallel_on_one_real_gpu():
    net = nn.Linear(3, 2).to("cuda:0")
    data = torch.ones(4, 3, device="cuda:0")
    assert torch.equal(nn.DataParallel(net, device_ids=[0])(data), net(data))
    assert torch.cuda.comm.broadcast(data, [0])[0].device == data.device
