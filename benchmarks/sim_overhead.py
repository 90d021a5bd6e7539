"""What simulated GPUs cost over the CPU that does their work, both measured in one run, turn about.

Run `python benchmarks/sim_overhead.py` from the repository's root; `--json FILE` writes the figures. The wanted: at
most 10 µs added to an operation with clock and counting off, 25 µs with both on; a step of LeNet on 256 images within
1.15 of the CPU's with both on; no memory more after 10,000 steps of a small network than after 1,000.
Everything here is measured on this machine's wall clock; the clock of the simulated GPUs runs, but is not read.
"""

import argparse
import json
import statistics
import time
from pathlib import Path

import torch
from torch import nn

from d2lmini import sim
from d2lmini.models.lenet import LeNet
from d2lmini.timing import provenance

SETTINGS = {"clock and counting off": {"clock": False, "counting": False}, "clock off": {"clock": False}, "all on": {}}


def operations(device):
    """Return small operations by name, on tensors of 4×4 numbers, where the overhead is all there is."""
    a, b = torch.ones(4, 4, device=device), torch.ones(4, 4, device=device)
    w = torch.ones(4, 4, device=device, requires_grad=True)
    return {
        "a + b": lambda: a + b, "a.add_(b)": lambda: a.add_(b), "a @ b": lambda: a @ b,
        "a.view(16)": lambda: a.view(16), "a.sum()": lambda: a.sum(),
        "relu(a)": lambda: torch.relu(a),
        "w * b, for backward": lambda: w * b, "relu(w), for backward": lambda: torch.relu(w),
        "empty(4, 4)": lambda: torch.empty(4, 4, device=device), "cat([a, b])": lambda: torch.cat([a, b]),
    }  # fmt: skip


def added(repeats=15, calls=1000):
    """Return the microseconds that each operation takes longer than on the CPU.

    Of `repeats` turns the fastest of each counts: what others do on this machine only ever adds.
    """
    host, ours = operations("cpu"), operations("sim:0")
    fastest = {name: [float("inf")] * 2 for name in host}
    for _ in range(repeats):
        for name, best in fastest.items():
            best[:] = map(min, best, (_seconds(host[name], calls), _seconds(ours[name], calls)))
    return {name: (mine - cpu) / calls * 1e6 for name, (cpu, mine) in fastest.items()}


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
        nn.functional.cross_entropy(net(X), y).backward()
        optimizer.step()

    return step


def lenet_ratio(repeats=31):
    """Return how many times as long as on the CPU a step of LeNet on 256 images takes: the median of pairs."""
    X, y = torch.randn(256, 1, 28, 28), torch.arange(256) % 10
    host, ours = (trainer(LeNet(), X, y, device) for device in ("cpu", "sim:0"))
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
        sim.enable(1, **options)
        figures["added_us"][setting] = added()
    figures |= {"lenet_ratio": lenet_ratio(), "growth_bytes": growth()}
    print(figures["where"], "\nmicroseconds added to an operation:", sep="")
    print(f"{'':22}", *(f"{name:>24}" for name in SETTINGS))
    for name in operations("cpu"):
        print(f"{name:22}", *(f"{figures['added_us'][setting][name]:24.1f}" for setting in SETTINGS))
    print(f"a step of LeNet on 256 images, all on: {figures['lenet_ratio']:.3f} of the CPU's")
    grown = figures["growth_bytes"]
    print(f"grown in 9,000 steps: {grown['device']} bytes on the device, {grown['process']} in the process")
    if file:
        Path(file).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", metavar="FILE", help="write the figures here as well")
    main(parser.parse_args().json)
