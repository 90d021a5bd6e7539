"""The check of the lab on small kernels: an ensemble of small networks, judged by the simulated clock."""

import torch
from torch.nn import functional as F

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, attempt, check, scored, typed
from simgpu.hardware.machines import build

MOST_MS, BOOK_MS = 0.6, 0.46  # what the lab asks for, and what the book's answer reaches
SMALL = ((5, 3, 4, 2, 3), (1, 2, 3, 1, 1), (9, 256, 64, 16, 32))  # rows, inputs, hidden units, outputs, networks
LARGE = (2048, 256, 64, 16, 32)


@check
def ensemble(function):
    """``function(X, W1, W2)``: the mean of the outputs of many small networks, on a GPU that works all the time."""
    for shape in (*SMALL, LARGE):  # the size that is timed, too
        _compare(function, shape)
    if not simgpu.has_clock():
        simgpu.enable(2, shapes_only=True)  # the results were compared on the CPU
    machine = build(max(2, torch.sim.device_count()), "A100-SXM4-80GB")
    with simgpu.use_clock(simgpu.Clock(machine)):
        took, busy = _timed(function)
    floor = _flops(LARGE) / machine.gpu.peak_fp32_flops_per_s
    if busy < floor:
        raise Wrong(
            f"{_words(LARGE)}: the GPU is busy for {busy * 1e3:.2f} ms, less than the {floor * 1e3:.2f} ms that the "
            "arithmetic takes at its peak in float32; all of the work must be done, and on the GPU"
        )
    told = f"{scored('ensemble', took * 1e3, BOOK_MS, 'ms')}; the GPU is idle for {1 - busy / took:.0%}"
    if took * 1e3 > MOST_MS:
        wanted = f"at most {MOST_MS} ms are wanted"
        raise Wrong(f"{_words(LARGE)}: the results are right, but the step takes {told}; {wanted}")
    return f"output and gradients are right, and a step takes {told}"


def _words(shape):
    rows, inputs, hidden, outputs, networks = shape
    return f"{networks} networks of {inputs}, {hidden} and {outputs} units, {rows} rows"


def _flops(shape):
    """Return the FLOPs of a step: both layers forward, the weights' gradients, and the hidden units' gradient."""
    rows, inputs, hidden, outputs, networks = shape
    return 2 * rows * networks * (2 * inputs * hidden + 3 * hidden * outputs)


def _inputs(shape, device="cpu"):
    rows, inputs, hidden, outputs, networks = shape
    draw = torch.Generator().manual_seed(rows)
    sizes = (rows, inputs), (networks, inputs, hidden), (networks, hidden, outputs)
    X, W1, W2 = (torch.randn(size, generator=draw).to(device) for size in sizes)
    return X, W1.requires_grad_(), W2.requires_grad_()


def _compare(function, shape):
    """Compare output and gradients with the batched answer on the CPU."""
    given, mine, right = _words(shape), _inputs(shape), _inputs(shape)
    for X in (mine[0], right[0]):
        X.requires_grad_()  # it may come from a layer
    out = attempt(lambda: function(*mine), given=given)
    want = (F.relu(right[0] @ right[1]) @ right[2]).mean(0)
    if not isinstance(out, torch.Tensor) or (out.shape, out.device, out.dtype) != (want.shape, want.device, want.dtype):
        wanted = f"a tensor of float32 and of shape {list(want.shape)} on the device of X"
        raise Wrong(f"{given}: expected {wanted}, got {typed(out)}")
    _same(given, "the output", out.detach(), want.detach())
    if not out.requires_grad:
        raise Wrong(f"{given}: no gradient can flow back from the output")
    out.square().sum().backward()
    want.square().sum().backward()
    for name, got, exact in zip(("X", "W1", "W2"), mine, right):
        if got.grad is None:
            raise Wrong(f"{given}: {name} has no gradient")
        _same(given, f"the gradient of {name}", got.grad, exact.grad)


def _same(given, what, got, want):
    if off := first_off(what, want, got, rtol=1e-4, atol=1e-4 * want.abs().max().item()):
        raise Wrong(f"{given}: {off}")


def _timed(function):
    """Return the seconds of a step on the simulated GPU, and for how many of them the GPU is busy."""
    inputs = _inputs(LARGE, "sim:0")
    torch.sim.synchronize(0)
    with simgpu.trace() as trace:
        attempt(lambda: function(*inputs).square().sum().backward() or True, given=f"{_words(LARGE)}, on sim:0")
        torch.sim.synchronize(0)
    return trace.seconds, trace.busy_seconds()["gpu0"]
