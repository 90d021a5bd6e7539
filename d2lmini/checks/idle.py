"""Check of the lab on synchronisation: a loop that keeps its GPU waiting, judged by the clock."""

import torch

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, attempt, check, many, must_be, need_gpus, number, scored, typed
from simgpu.hardware.machines import build

IDLE, BOOK_MS, LIMIT_MS = 0.1, 1.62, 2.5  # the starter takes 2.1 ms; the limit is for work that only fills the time
NUMBERS, COUNT = 2**20, 8
CASES = (([(3,)], 1.0), ([(2, 3)] * 4, 5.0), ([(5,)] * 3, 100.0), ([(4, 2)] * 5, 0.5))  # shapes, limit


@check
def clipped_mean(function):
    """``function(gradients, limit)``: (mean of the gradients, each of a norm up to `limit`; the largest norm)."""
    need_gpus()
    with simgpu.use_clock(simgpu.Clock(build(max(2, torch.sim.device_count()), "GTX 580", "PCIe3-x16"))):
        for device, (shapes, limit) in zip(("sim:0", "sim:1", "sim:0", "sim:0"), CASES):
            _try(function, [10 ** (i - 1) * torch.rand(shape) for i, shape in enumerate(shapes)], limit, device)
        tensors = [torch.rand(NUMBERS).mul_(0.01 if i % 3 == 1 else 1 + i) for i in range(COUNT)]
        trace = _try(function, tensors, 2000.0, "sim:0")
    ms = trace.seconds * 1e3
    idle = 1 - trace.busy_seconds()["gpu0"] / trace.seconds
    told = f"the GPU is idle {idle:.1%} of {scored('clipped_mean', ms, BOOK_MS, 'ms')}"
    if idle > IDLE:
        reads = sum(span.kind == "wait" for span in trace.spans)
        raise Wrong(
            f"the result is right, but {told}, and the host waits {many(reads, 'time')}; bring it below {IDLE:.0%}"
        )
    if ms > LIMIT_MS:
        raise Wrong(
            f"the result is right, but {told}: that is longer than {LIMIT_MS} ms; make fewer or smaller kernels"
        )
    return f"the result is right, and {told}"


def _try(function, tensors, limit, device):
    """Return the trace of one call, whose result is compared with the formula."""
    given = f"{many(len(tensors), 'gradient')} of shape {list(tensors[0].shape)} on {device}, limit {limit:g}"
    gradients, traces = [tensor.to(device) for tensor in tensors], []

    def traced(gradients):
        torch.sim.synchronize(device)
        with simgpu.trace() as trace:
            result = function(gradients, limit)
            torch.sim.synchronize(device)
        traces.append(trace)
        return result

    result = attempt(traced, gradients, given=given)
    if not isinstance(result, (tuple, list)) or len(result) != 2:
        raise Wrong(f"{given}: expected a mean and a norm, got {typed(result)}")
    _compare(given, tensors, limit, torch.device(device), *result)
    return traces[0]


def _compare(given, tensors, limit, device, mean, largest):
    norms = [tensor.double().norm().item() for tensor in tensors]
    want = sum(tensor.double() * min(1, limit / norm) for tensor, norm in zip(tensors, norms)) / len(tensors)
    if not isinstance(mean, torch.Tensor) or (mean.device, mean.dtype) != (device, torch.float32):
        raise Wrong(f"{given}: expected the mean as a tensor of float32 on {device}, got {typed(mean)}")
    if off := first_off("the mean", want, mean.cpu(), rtol=1e-4, atol=1e-6):
        raise Wrong(f"{given}: {off}")
    if not isinstance(largest, float | int) or number(largest) is None:
        raise Wrong(f"{given}: expected the largest norm as a number of Python, got {typed(largest)}")
    must_be(max(norms), number(largest), given=f"{given}, largest norm", rel_tol=1e-4)
