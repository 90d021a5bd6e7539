"""The check of the lab on buckets: fewer messages for many small gradients, judged by the clock and the allocator."""

import torch

import simgpu
from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many, need_gpus, scored
from simgpu.hardware.machines import build

SMALL = ((3, 2), (2,), (5,), (1,), (4, 3))  # shapes of the gradients that are compared number by number
LAYERS, WIDTH = 48, 128  # the network that is timed: as many weights, and as many biases
STEP_MS, BESIDE_MB, BOOK_MS = 2.0, 1.0, 1.28


@check
def fewer_messages(function):
    """``function(replicas)``: lists of parameters, one list a GPU; afterwards each gradient is the sum of all GPUs'."""
    need_gpus(3)
    for gpus in (1, 2, 3):
        _try_sums(function, SMALL, gpus)
    shapes = [shape for _ in range(LAYERS) for shape in ((WIDTH, WIDTH), (WIDTH,))]
    machine = build(max(2, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    with simgpu.use_clock(simgpu.Clock(machine)):
        seconds, beside = _try_sums(function, shapes, 2)
    given = f"{len(shapes)} gradients on two GPUs"
    told = f"{scored('fewer_messages', seconds * 1e3, BOOK_MS, 'ms')}, and {beside / 1e6:.2f} MB beside the gradients"
    if seconds * 1e3 > STEP_MS or beside > BESIDE_MB * 1e6:
        slow = seconds * 1e3 > STEP_MS
        which = "that is too long (each copy is a launch, too)" if slow else "that is too much memory"
        raise Wrong(
            f"{given}: the sums are right, but they take {told}; {which}: {STEP_MS:g} ms and {BESIDE_MB:g} MB "
            "are enough"
        )
    return f"the sums are right; {given} take {told}"


def _try_sums(function, shapes, gpus):
    """Return the seconds that the sums take, and the most bytes that a GPU needs meanwhile; raise Wrong for others."""
    given = f"{many(len(shapes), 'gradient')} on {many(gpus, 'GPU')}"
    numbers = torch.Generator().manual_seed(0)
    gradients = [[torch.randn(shape, generator=numbers) * 10**rank for shape in shapes] for rank in range(gpus)]
    devices = [torch.device("sim", rank) for rank in range(gpus)]
    replicas = [
        [_parameter(gradient, device) for gradient in mine] for mine, device in zip(gradients, devices, strict=True)
    ]
    before = []
    for device in devices:
        torch.sim.synchronize(device)
        torch.sim.reset_peak_memory_stats(device)
        before.append(torch.sim.memory_allocated(device))
    begin = simgpu.now()
    attempt(lambda: [function(replicas)], given=given)
    for device in devices:
        torch.sim.synchronize(device)
    seconds = simgpu.now() - begin
    beside = max(torch.sim.max_memory_allocated(device) - held for device, held in zip(devices, before))
    for place, parts in enumerate(zip(*gradients)):
        _must_be_sums(sum(parts), [replica[place].grad for replica in replicas], devices, f"{given}: gradient {place}")
    return seconds, beside


def _parameter(gradient, device):
    parameter = torch.zeros(gradient.shape, device=device, requires_grad=True)
    parameter.grad = gradient.to(device)
    return parameter


def _must_be_sums(want, found, devices, where):
    for got, device in zip(found, devices):
        if got is None or got.shape != want.shape or got.device != device:
            told = "there is none" if got is None else f"it has the shape {list(got.shape)} and is on {got.device}"
            raise Wrong(f"{where} should have the shape {list(want.shape)} and be on {device}; {told}")
        if not torch.allclose(got.cpu(), want, rtol=1e-5, atol=1e-6 * want.abs().max().item()):
            place = int((got.cpu() - want).abs().argmax())
            numbers = (brief(t.flatten()[place].item(), 6) for t in (want, got))
            raise Wrong("{} on {}: number {} should be {}, it is {}".format(where, device, place, *numbers))
