"""Checks of the labs on training from scratch: GPUs that take turns, and two wrong lines in a training loop."""

from dataclasses import replace

import torch
from torch.nn import functional as F

import simgpu
from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, check, listed, many, need_gpus, scored, typed
from d2lmini.data_parallel.by_hand import get_params, lenet
from d2lmini.models.lenet import lenet_params
from simgpu.hardware import HOST_COSTS
from simgpu.hardware.machines import build

IMAGES, STEP_MS, BOOK_MS = 512, 4.0, 3.55  # the lab on waits: a batch, what is asked for, the book's answer
LAUNCH_S = 10e-6  # the low end of what was measured: the GPUs are to be the bottleneck, not the host
LEARNING_RATE = 0.5
WRONG_LINES = {"A", "E"}


@check
def take_turns(function):
    """``function(X, y, replicas, devices, lr)``: a step of SGD on every replica; returns the batch's mean loss."""
    need_gpus(3)
    for images, gpus in ((5, 1), (5, 2), (7, 3)):
        _try_step(function, images, gpus, steps=2)
    machine = build(max(2, torch.sim.device_count()), "GTX 1080", "PCIe3-x16")
    cost = replace(HOST_COSTS["eager"], forward_s=LAUNCH_S, backward_s=LAUNCH_S / 2)
    with simgpu.use_clock(simgpu.Clock(machine, cost)):
        seconds, idle = _try_step(function, IMAGES, 2)
    given = f"{IMAGES} images on two GPUs"
    told = f"{scored('take_turns', seconds * 1e3, BOOK_MS, 'ms for a step')}, GPU 1 is idle for {idle:.0%} of it"
    if seconds * 1e3 > STEP_MS:
        raise Wrong(f"{given}: loss and parameters are right, but {told}; bring the step below {STEP_MS:g} ms")
    return f"loss and parameters are those of one GPU, and {given}: {told}"


def _batch(images):
    numbers = torch.Generator().manual_seed(images)
    return torch.rand(images, 1, 28, 28, generator=numbers), torch.arange(images) % 10


def _after(params, X, y, lr, steps=1):
    """Return the loss of the last step, and parameters after `steps` steps of SGD on the whole batch."""
    params = get_params(params, "cpu")
    for _ in range(steps):
        loss = F.cross_entropy(lenet(X, params), y)
        gradients = torch.autograd.grad(loss, params)
        with torch.no_grad():
            for p, gradient in zip(params, gradients):
                p -= lr * gradient
    return loss.item(), [p.detach() for p in params]


def _try_step(function, images, gpus, steps=1):
    """Return the seconds of the last step, and for which share of it the last GPU is idle; raise Wrong for a bad one.

    Gradients that nobody sets to zero show in the second step.
    """
    X, y = _batch(images)
    params, devices = lenet_params(), [torch.device("sim", i) for i in range(gpus)]
    replicas = [get_params(params, device) for device in devices]
    for step in range(1, steps + 1):
        given = f"{many(images, 'image')} on {many(gpus, 'GPU')}" + f", step {step}" * (steps > 1)
        loss, want = _after(params, X, y, LEARNING_RATE, step)
        _wait(devices)
        begin = simgpu.now()
        with simgpu.trace() as trace:
            got = ask(lambda: function(X, y, replicas, devices, LEARNING_RATE), given=given, what="the mean loss")
            _wait(devices)
        seconds = simgpu.now() - begin
        if not abs(got - loss) <= 1e-4 * loss:
            told, found = apart(loss, got)
            raise Wrong(f"{given}: the mean loss is {told}, got {found}")
        for device, replica in zip(devices, replicas):
            _must_be_near(params, want, replica, f"{given}: on {device}")
    return seconds, 1 - trace.busy_seconds()[f"gpu{gpus - 1}"] / seconds


def _must_be_near(before, want, found, where):
    """Raise Wrong unless parameters are the wanted ones; the message says how far they moved."""
    names = ("W1", "b1", "W2", "b2", "W3", "b3", "W4", "b4")
    for name, old, w, f in zip(names, before, want, found):
        if not isinstance(f, torch.Tensor) or f.shape != w.shape:
            raise Wrong(f"{where}, {name} should be a tensor of shape {list(w.shape)}, got {typed(f)}")
        f = f.detach().cpu()
        if not torch.allclose(f, w, rtol=1e-3, atol=1e-5):
            place = int((f - w).abs().argmax())
            told, moved = ((t.flatten()[place] - old.flatten()[place].cpu()).item() for t in (w, f))
            raise Wrong(f"{where}, a number of {name} should move by {told:.4g}, it moves by {moved:.4g}")


def _wait(devices):
    for device in devices:
        torch.sim.synchronize(device)


@check
def wrong_lines(function, lines=""):
    """``function(params, X, y, devices, lr, steps)``: parameters after training on devices; `lines` were wrong."""
    need_gpus(3)
    for images, gpus, home, steps in ((6, 1, "cpu", 1), (6, 2, "cpu", 1), (5, 2, "sim:0", 2), (7, 3, "sim:1", 2)):
        X, y = _batch(images)
        params = get_params(lenet_params(), home)
        devices = [torch.device("sim", i) for i in range(gpus)]
        given = f"{many(images, 'image')} on {many(gpus, 'GPU')}, params on {home}, {many(steps, 'step')}"
        with simgpu.trace() as trace:
            answer = attempt(function, params, X, y, devices, 0.5, steps, given=given)
            _wait(devices)
        busy = {span.place for span in trace.spans if span.kind == "operation"}
        if idle := [device for device in devices if f"gpu{device.index}" not in busy]:
            raise Wrong(f"{given}: {idle[0]} computes nothing; each device should train on its own shard")
        _, want = _after(params, X, y, 0.5, steps)
        found = listed(answer, len(want))
        if found is None:
            raise Wrong(f"{given}: expected a list of {len(want)} tensors, got {typed(answer)}")
        _must_be_near([p.detach() for p in params], want, found, given)
    named = {letter for letter in str(lines).upper() if letter.isalpha()}
    if named != WRONG_LINES:
        right = len(named & WRONG_LINES)
        raise Wrong(f"the training is right now; but which two lines were wrong? Of {lines!r} {right} is right")
    return "the caller's parameters stay as they are, and every step divides by the size of the whole batch"
