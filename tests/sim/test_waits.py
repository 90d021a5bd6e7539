"""What makes the host wait, counted by the clock, as CUDA has it: reading numbers, masks, indices from the host."""

import pytest
import torch

import simgpu
from simgpu.hardware.op_costs import HostCost

ROWS = 6  # of a summary: three at each end


@pytest.fixture(autouse=True)
def gpu():
    simgpu.enable(1, gpu="H100-SXM5-80GB")
    return torch.device("sim", 0)


def waits(function, *args):
    """Return how often the host waits while `function` runs, after all that was queued before."""
    torch.sim.synchronize()
    with simgpu.trace() as trace:
        function(*args)
    return sum(span.kind == "wait" for span in trace.spans)


def assign(x, place, value):
    x[place] = value


@pytest.mark.parametrize(
    ("function", "count"),
    [
        (lambda x, mask, index: x.item(), 1),
        (lambda x, mask, index: bool(x > 1), 1),
        (lambda x, mask, index: f"{x}", 1),
        (lambda x, mask, index: mask.nonzero(), 1),
        (lambda x, mask, index: mask[mask], 1),
        (lambda x, mask, index: torch.masked_select(mask, mask), 1),
        (lambda x, mask, index: torch.where(mask), 1),
        (lambda x, mask, index: torch.where(mask, x, 0.0), 0),
        (lambda x, mask, index: mask.logical_not(), 0),
        (lambda x, mask, index: index[index], 0),
        (lambda x, mask, index: index[index.cpu()], 2),
        (lambda x, mask, index: index[torch.tensor([1, 2])], 1),
        (lambda x, mask, index: index[[1, 2]], 1),
        (lambda x, mask, index: index[1:], 0),
        (lambda x, mask, index: assign(index, 0, 3), 0),
        (lambda x, mask, index: assign(index, index.clone(), 3), 0),
        (lambda x, mask, index: assign(index, torch.tensor([1]), 3), 1),
        (lambda x, mask, index: assign(mask, mask.clone(), False), 0),
        (lambda x, mask, index: assign(mask, mask.clone(), ~mask[:2]), 1),
        (lambda x, mask, index: torch.tensor([1.0, 2.0], device=x.device), 1),
        (lambda x, mask, index: torch.full((2,), 1.0, device=x.device), 0),
        (lambda x, mask, index: torch.ones(2, pin_memory=True).to(x.device, non_blocking=True), 0),
        (lambda x, mask, index: index.tolist(), 1),
        (lambda x, mask, index: torch.equal(index, index), 1),
    ],
)
def test_what_makes_the_host_wait(gpu, function, count):
    mask, index = torch.tensor([True, False, True], device=gpu), torch.arange(3, device=gpu)
    assert waits(function, torch.tensor(1.5, device=gpu), mask, index) == count


def test_a_mask_waits_for_its_own_stream_alone(gpu):
    other = torch.sim.Stream()
    mask, large = torch.tensor([True, False], device=gpu), torch.ones(2**22, pin_memory=True)
    torch.sim.synchronize()
    with torch.sim.stream(other):
        copied = large.to(gpu, non_blocking=True)
    begin = simgpu.now()
    mask.nonzero()
    between = simgpu.now()
    torch.sim.synchronize()
    assert between - begin < simgpu.now() - between
    assert copied.shape == large.shape


def test_printing_reads_number_by_number(gpu):
    """Of a large tensor 36 numbers are shown and each is read at least once, to find how wide it is."""
    one = torch.tensor(1.5, device=gpu)
    assert waits(repr, one) > 5 * waits(one.item) == 5
    large = torch.randn(1000, 1000, generator=torch.Generator().manual_seed(0)).to(gpu)
    assert waits(repr, large) >= 36 + 2 * ROWS
    assert waits(lambda: repr(large.cpu())) == 1
    assert repr(large).split()[:-1] == repr(large.cpu()).replace("]])", "]],").split()


@pytest.mark.parametrize("launch_us", [10, 25, 59])
def test_item_and_indexing_cost_pytorchs_own_part(gpu, launch_us):
    """A call of Python's is one whatever it does: ``.item()`` takes longer than an addition, indexing a part of one."""

    def host_us(function):
        torch.sim.synchronize()
        begin = simgpu.now()
        function()
        return (simgpu.now() - begin) * 1e6

    x = torch.ones(8, device=gpu)
    scalar = x.sum()
    cost = HostCost("chosen", launch_us * 1e-6, launch_us * 0.5e-6, 10e-6, 59e-6, "chosen")
    with simgpu.use_clock(simgpu.Clock(simgpu.machine(), cost)):
        assert host_us(lambda: x + x) == pytest.approx(launch_us)
        assert launch_us < host_us(scalar.item) < launch_us + 5
        assert host_us(lambda: x[0]) == pytest.approx((launch_us - 3.8) / 5)
        assert host_us(lambda: x[0].item()) == pytest.approx(host_us(lambda: x[0]) + host_us(scalar.item))
        assert host_us(lambda: x.view(2, 4).T) == 0
        with simgpu.one_launch():
            assert host_us(lambda: x[0]) == 0


def test_a_copy_to_the_host_that_does_not_block_is_asynchronous(gpu):
    """As on CUDA its result is pinned, and the host goes on while the bytes travel."""
    x = torch.arange(2.0**22, device=gpu)
    torch.sim.synchronize()
    begin = simgpu.now()
    later = x.to("cpu", non_blocking=True)
    called = simgpu.now() - begin
    torch.sim.synchronize()
    assert called < 10e-6 < 100e-6 < simgpu.now() - begin
    assert later.is_pinned()
    assert torch.equal(later, x.cpu())
    assert not x.to("cpu").is_pinned()
    assert waits(x.to, "cpu") == 1
    assert waits(torch.empty(2**22).copy_, x, True) == 1, "pageable memory makes the host wait all the same"
