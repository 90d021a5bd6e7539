"""The check of the lab on calibration: two constants of the clock from three measured steps, judged by others."""

from dataclasses import replace
from functools import partial

import torch
from torch import nn

import simgpu
from d2lmini.checks.mechanism import Wrong, ask, check, many, need_gpus, number, pair, scored, typed
from simgpu.hardware import HOST_COSTS
from simgpu.hardware.machines import build

MOST, LARGEST_BATCH = 3, 2**20  # measurements of a machine
NOISE = (0.01, -0.01, 0.005)  # of the first, second, third measurement
ALLOWED, BOOK = 1.05, 1.034  # error factors of held-out steps
SHEET = build(2, "A100-SXM4-80GB")  # two, as there are two simulated GPUs or more
MACHINES = ((24e-6, 0.45), (64e-6, 0.95), (11e-6, 0.8))  # the host's seconds for an operation, share of the data sheet
FITTED = (2, 64)  # blocks and width of the network that may be measured
HELD_OUT = ((FITTED, 24), (FITTED, 50_000), (FITTED, 300_000), ((3, 96), 8), ((3, 96), 200_000))


@check
def calibrate(function):
    """``function(measure, simulate)``: (host's seconds for an operation, memory's bytes a second) of a machine."""
    need_gpus(2, numbers=False)
    networks = {shape: _network(*shape) for shape in {FITTED, HELD_OUT[-1][0]}}
    worst = 1.0

    def simulate(batch, host, rate):
        return _checked(networks[FITTED], batch, host, rate)

    for place, (host, share) in enumerate(MACHINES, 1):
        given = f"machine {place} of {len(MACHINES)}"
        true = host, share * SHEET.gpu.memory_bytes_per_s
        measured = []

        def measure(batch, true=true, measured=measured):
            if len(measured) == MOST:
                raise RuntimeError(f"only {MOST} measurements of a machine are allowed")
            seconds = simulate(batch, *true) * (1 + NOISE[len(measured)])
            measured.append((batch, seconds))
            return seconds

        found = ask(function, measure, simulate, given=given, what="a pair of numbers (host, rate)", read=pair)
        if not measured:
            raise Wrong(f"{given}: nothing was measured, but each machine has other constants; call `measure`")
        if not min(found) > 0:
            raise Wrong(f"{given}: expected a pair of numbers above 0, got {typed(found)}")
        errors = [_factor(simulate(batch, *found), seconds) for batch, seconds in measured]
        fitted = f"the steps that you measured: error factor {max(errors):.4g} at most"
        for shape, batch in HELD_OUT:
            step, expected = (_seconds(networks[shape], batch, *constants) for constants in (true, found))
            worst = max(worst, _factor(step, expected))
            if worst > ALLOWED:
                what = "the same network" if shape == FITTED else "a larger network"
                told = f"{what} with batch {batch:,} takes {step * 1e3:.2f} ms, by your constants {expected * 1e3:.2f}"
                raise Wrong(f"{given}: {fitted}; held out: {told}: error factor {worst:.4g}, {ALLOWED} is allowed")
    told = scored("calibrate", worst, BOOK, "is the largest error factor of held-out steps", ".3f")
    return f"on {many(len(MACHINES), 'machine')} {told}"


def _factor(a, b):
    return max(a / b, b / a)


def _network(blocks, width):
    layers = [kind(width) for _ in range(blocks) for kind in (partial(nn.Linear, width), nn.LayerNorm, _gelu)]
    return width, nn.Sequential(*layers).to("sim:0", torch.bfloat16)


def _gelu(width):
    return nn.GELU()


def _checked(network, batch, host, rate):
    whole = number(batch)
    if whole is None or whole != round(whole) or not 1 <= whole <= LARGEST_BATCH:
        raise ValueError(f"expected a batch from 1 to {LARGEST_BATCH:,}, got {typed(batch)}")
    for name, value in (("host", host), ("rate", rate)):
        if number(value) is None or not number(value) > 0:
            raise ValueError(f"expected a number above 0 as {name}, got {typed(value)}")
    return _seconds(network, int(whole), number(host), number(rate))


def _seconds(network, batch, host, rate):
    """Return the seconds of forward and backward on the clock of the A100 with these two constants."""
    width, layers = network
    cost = HOST_COSTS["eager"]
    mode = replace(cost, forward_s=host, backward_s=host * cost.backward_s / cost.forward_s)
    count = max(SHEET.count, torch.sim.device_count())
    machine = build(count, SHEET.gpu.name)
    machine = replace(machine, gpu=replace(machine.gpu, memory_bytes_per_s=rate))
    layers.zero_grad()
    with simgpu.use_clock(simgpu.Clock(machine, mode)):
        X = torch.empty(batch, width, device="sim:0", dtype=torch.bfloat16)
        torch.sim.synchronize(0)
        start = simgpu.now()
        layers(X).sum().backward()
        torch.sim.synchronize(0)
        return simgpu.now() - start
