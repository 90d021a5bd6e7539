"""Check of the lab on memory traffic: an optimizer's step, judged by the bytes that its kernels move."""

import torch

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, attempt, check, need_gpus, scored
from simgpu.hardware.machines import build

TARGET = 24  # bytes a parameter of the book's answer; one kernel that reads w, m, g and writes w, m moves 20
CASES = (((3,), 0.5, 0.25), ((2, 3), 0.1, 0.9), ((4, 64, 64), 0.01, 0.99))  # shape, learning rate, momentum


@check
def momentum_step(function):
    """``function(w, m, g, lr, beta)``: in place, m becomes beta × m + g and then w becomes w - lr × m."""
    need_gpus()
    machine = build(max(2, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    with simgpu.use_clock(simgpu.Clock(machine)):
        moved = [_try_steps(function, *case) for case in CASES][-1]
    told = scored("momentum_step", moved, TARGET, "bytes move for each parameter", "g")
    if moved > TARGET:
        raise Wrong(f"the step is right, but {told}; bring it to {TARGET}")
    return f"the step is right, and {told}"


def _try_steps(function, shape, lr, beta):
    """Return the bytes a parameter of the last of three steps, all compared with the formula."""
    torch.manual_seed(0)
    w, m = torch.rand(shape, device="sim"), torch.zeros(shape, device="sim")
    places = w.data_ptr(), m.data_ptr()
    want_w, want_m = w.cpu().double(), m.cpu().double()
    for step in range(3):
        g = torch.rand(shape, device="sim") + step
        kept = g.cpu()
        given = f"{list(shape)}, lr = {lr}, beta = {beta}, step {step + 1}"
        with simgpu.trace() as trace:
            attempt(lambda g=g: (function(w, m, g, lr, beta), True), given=given)
            torch.sim.synchronize()
        if crossed := sum(span.nbytes for span in trace.spans if span.kind == "copy"):
            raise Wrong(f"{given}: {crossed} bytes crossed a link; compute where w, m and g are")
        want_m = beta * want_m + kept.double()
        want_w = want_w - lr * want_m
        if (w.data_ptr(), m.data_ptr()) != places:
            raise Wrong(f"{given}: w or m has other memory than before; the network holds the old one: write in place")
        for name, want, got in (("m", want_m, _there(m)), ("w", want_w, _there(w)), ("g", kept.double(), _there(g))):
            if off := first_off(name, want, got, rtol=1e-5, atol=1e-7):
                raise Wrong(f"{given}: {off}{' (the step must not change g)' if name == 'g' else ''}")
    return sum(span.nbytes for span in trace.spans if span.kind == "operation") / w.numel()


def _there(tensor):
    return tensor.cpu().double()
