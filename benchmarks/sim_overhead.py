"""What simulated GPUs cost over the CPU that does their work, all measured in one run, turn about.

Run `python benchmarks/sim_overhead.py` from the repository's root; `--json FILE` writes the figures. What an operation
takes longer than on the CPU is given as a multiple of what a class takes longer that does nothing but unwrap and wrap:
so much costs it to stand between torch and its tensors at all. The wanted: at most 1.3 with clock and counting off, 2.2
with both on, which "w * b" for backward misses (1.4 to 1.6 and 2.0 to 2.6 in runs on an AMD EPYC). For the result that
autograd records, and for the leaf's node, torch asks the device's guard for the current stream. Ours is in Python, and
torch reaches it through pybind11; that of the wrapper's device, the CPU, is in C++. So a wrapper on our device, whose
guard is ours too, is measured beside it. With both on a step of LeNet on 256 images within 1.15 of the CPU's, one of a
tiny GPT-2 within 4, 2 and 1.5 for a width of 32, 128 and 256; no memory more after 10,000 steps of a small network than
after 1,000. Everything here is measured on this machine's wall clock; the clock of the simulated GPUs runs, but is not
read.
"""

import argparse
import json
import statistics
import time
from functools import partial
from pathlib import Path

import torch
from outputs import writable
from torch import nn

import simgpu
from d2lmini.models import GPT2
from d2lmini.models.lenet import LeNet
from d2lmini.timing import provenance

SETTINGS = {"clock and counting off": {"clock": False, "counting": False}, "clock off": {"clock": False}, "all on": {}}


def wrapper(place=None):
    """Return what wraps a tensor: each operation is run on what is inside, and its result wrapped.

    place: the device that the wrapper claims to be on, by default that of its tensor.
    """

    class Wrapper(torch.Tensor):
        __torch_function__ = torch._C._disabled_torch_function_impl

        @staticmethod
        def __torch_dispatch__(func, types, args=(), kwargs=None):
            inside = [a._inside if type(a) is Wrapper else [t._inside for t in a] if wrappers(a) else a for a in args]
            return wrapped(func(*inside, **(kwargs or {})))

    def wrappers(value):
        return type(value) is list and bool(value) and type(value[0]) is Wrapper

    def wrapped(tensor):
        new = torch.Tensor._make_wrapper_subclass(
            Wrapper, tensor.shape, strides=tensor.stride(), dtype=tensor.dtype, device=place or tensor.device
        )
        new._inside = tensor
        return new

    return wrapped


def operations(ones):
    """Return small operations by name, where the overhead is all there is; ones: makes a tensor of 4×4 ones."""
    a, b, w = ones(), ones(), ones().requires_grad_()
    return {
        "a + b": lambda: a + b,
        "a.add_(b)": lambda: a.add_(b),
        "a @ b": lambda: a @ b,
        "a.view(16)": lambda: a.view(16),
        "a.sum()": lambda: a.sum(),
        "relu(a)": lambda: torch.relu(a),
        "cat([a, b])": lambda: torch.cat([a, b]),
        "w * b, for backward": lambda: w * b,
        "relu(w), for backward": lambda: torch.relu(w),
    }


def added(repeats=240, calls=50):
    """Return, by operation, the microseconds that it takes longer than on the CPU: ours, and those of two wrappers.

    Of `repeats` turns the fastest of each counts: what others do on this machine only ever adds. A turn of `calls` is
    shorter than the slice of time that a busy machine gives a process, so that some turns pass undisturbed.
    """
    cpu, wrapped, alike = torch.ones(4, 4), wrapper(), wrapper(torch.device("sim:0"))
    makes = {
        "host": cpu.clone,
        "ours": lambda: cpu.to("sim:0"),
        "wrapper": lambda: wrapped(cpu.clone()),
        "wrapper on sim:0": lambda: alike(cpu.clone()),
    }
    sides = [operations(make) for make in makes.values()]
    fastest = {name: [float("inf")] * len(sides) for name in sides[0]}
    for _ in range(repeats):
        for name, best in fastest.items():
            best[:] = [min(before, _seconds(side[name], calls)) for before, side in zip(best, sides)]
    return {
        name: {who: (seconds - host) / calls * 1e6 for who, seconds in zip(list(makes)[1:], others)}
        for name, (host, *others) in fastest.items()
    }


def _seconds(function, calls):
    start = time.perf_counter()
    for _ in range(calls):
        function()
    return time.perf_counter() - start


def trainer(network, inputs, labels, device):
    """Return a function that takes one step of SGD with `network` on `device`."""
    net, X, y = network.to(device), inputs.to(device), labels.to(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)

    def step():
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(X).flatten(0, -2), y.flatten()).backward()
        optimizer.step()

    return step


def steps():
    """Return, by name, what makes a network, and its inputs and labels."""
    tokens = torch.arange(8 * 64).view(8, 64)
    named = {"LeNet, 256 images": (LeNet, torch.randn(256, 1, 28, 28), torch.arange(256) % 10)}
    for width in (32, 128, 256):
        named[f"GPT-2 of width {width}, 8 × 64 tokens"] = partial(tiny, width), tokens, tokens
    return named


def tiny(width):
    """Return a GPT-2 of two layers with the words' vectors as small as its authors made them.

    Larger ones make probabilities so small that the CPU is slow with them, whatever the device.
    """
    net = GPT2(width, layers=2, heads=4, words=1000, length=64)
    nn.init.normal_(net.words.weight, std=0.02)
    return net


def step_ratio(make, inputs, labels, repeats=31):
    """Return how many times as long as on the CPU a step of a network takes: the median of pairs."""
    host, ours = (trainer(make(), inputs, labels, device) for device in ("cpu", "sim:0"))
    for step in (host, ours):
        _seconds(step, 3)
    return statistics.median(_seconds(ours, 1) / _seconds(host, 1) for _ in range(repeats))


def growth(steps=10_000):
    """Return the bytes by which device and process grew between step 1,000 and the last, of a small network."""
    net = nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 2))
    step = trainer(net, torch.ones(4, 8), torch.ones(4).long(), "sim:0")
    sizes = []
    for count in (1000, steps - 1000):
        _seconds(step, count)
        sizes.append((torch.sim.memory_allocated(0), _resident()))
    return {"device": sizes[1][0] - sizes[0][0], "process": sizes[1][1] - sizes[0][1]}


def _resident():
    """Return the bytes of this process in memory; 0 where the system does not say."""
    status = Path("/proc/self/statm")
    return int(status.read_text().split()[1]) * 4096 if status.exists() else 0


def main(file=None):
    """Measure, print the table, and write the figures to `file`."""
    figures = {"where": provenance(), "added_us": {}}
    for setting, options in SETTINGS.items():
        simgpu.enable(1, **options)
        figures["added_us"][setting] = added()
    figures["step_ratios"] = {name: step_ratio(*step) for name, step in steps().items()}
    figures["growth_bytes"] = growth()
    print(figures["where"], "\nadded to an operation, as a multiple of what a wrapper adds (microseconds):", sep="")
    print(f"{'':22}", *(f"{name:>24}" for name in SETTINGS))
    for name in figures["added_us"]["all on"]:
        pairs = [(us["ours"] / us["wrapper"], us["ours"]) for us in (figures["added_us"][s][name] for s in SETTINGS)]
        print(f"{name:22}", *(f"{ratio:15.2f} ({ours:6.1f})" for ratio, ours in pairs))
    print("the same, where the wrapper too says that it is on sim:0, and has its guard:")
    for name in filter(lambda name: "backward" in name, figures["added_us"]["all on"]):
        found = (figures["added_us"][s][name] for s in SETTINGS)
        print(f"{name:22}", *(f"{us['ours'] / us['wrapper on sim:0']:15.2f} {'':8}" for us in found))
    for name, ratio in figures["step_ratios"].items():
        print(f"a step of {name}, all on: {ratio:.3f} of the CPU's")
    grown = figures["growth_bytes"]
    print(f"grown in 9,000 steps: {grown['device']} bytes on the device, {grown['process']} in the process")
    if file:
        Path(file).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the figures here as well")
    main(parser.parse_args().json)
