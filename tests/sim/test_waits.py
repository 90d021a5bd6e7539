"""What makes the host wait, counted by the clock, as CUDA has it: reading numbers, masks, indices from the host."""

import pytest
import torch

import simgpu

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
