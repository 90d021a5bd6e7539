"""Predict the GPU columns of Table 7 of Shi et al. 2016 with the simulated clock, and say how far off it is.

Run `python benchmarks/table7.py` from the repository's root; `--json FILE` writes the rows (the chapter on throughput
draws those in chapters/results/predict.json).
Tensors live on the meta device: operations have shapes but no data, so a step takes no memory and a second or so.

Both cards run at base clock: a K80 boosts only while its power budget lasts, and the table's ratio of the two cards in
FCN-R and FCN-S, 1.75 to 2.0, fits 4.61 to 2.81 TFLOPS (base) better than 4.98 to 4.37 (boost).

Two networks have a published best that cannot have done the work costed here, and are far off for that reason:
- LSTM: CNTK's 0.186 s on one CPU core would be 480 GFLOP/s, several times what any core of the time can do.
- AlexNet-S: MXNet's 0.020 s on a GTX 980 would be 5 TFLOP/s by the direct algorithm, more than the card's peak. In the
  authors' published script (hclhkbu/dlbench, synthetic/experiments/mxnet/cnn/alexnet/symbol_alexnet.py) the last
  pooling reads the third convolution and the last layer reads that pooling, so four layers take no part.
"""

import argparse
import csv
import json
import statistics
from dataclasses import replace
from functools import cache
from pathlib import Path

import torch
from networks import NETWORKS
from outputs import writable
from torch.utils.flop_counter import FlopCounterMode

import simgpu
from d2lmini.measuring.operations import Reporting
from simgpu.hardware.machines import build

TABLE = Path(__file__).parent.parent / "chapters" / "data" / "shi2016_table7.csv"
CARDS = {"gtx980": "GTX 980", "k80": "K80 (one of two chips)"}


def make(name):
    """Return a network on the meta device with its optimizer and one batch: inputs and targets."""
    module, shape = NETWORKS[name]
    with torch.device("meta"):
        model = module()
        inputs = torch.empty(shape, dtype=torch.int64) if name == "LSTM" else torch.empty(shape)
        targets = torch.empty(shape[0] * shape[1] if name == "LSTM" else shape[0], dtype=torch.int64)
    return model, torch.optim.SGD(model.parameters(), lr=0.01), inputs, targets


def step(model, optimizer, inputs, targets):
    """Run one training step as the tools of 2016 did: zero the gradients, forward, backward that adds, update."""
    optimizer.zero_grad(set_to_none=False)
    torch.nn.functional.cross_entropy(model(inputs), targets).backward()
    optimizer.step()


def simulate(name, card):
    """Return the simulated seconds of one training step on `card`, from pageable inputs to the last update's end."""
    everything = make(name)
    step(*everything)  # makes the gradients
    machine = build(1, card)
    clock = simgpu.Clock(replace(machine, gpu=machine.gpu.at_base_clock()), "C++")
    with clock.trace() as trace:
        clock.copy(None, 0, everything[2].nbytes, pinned=False, blocking=True)
        with Reporting(lambda *call: clock.operation(0, *call)):
            step(*everything)
        clock.synchronize()
    return trace.seconds


@cache
def flops(name):
    """Return the floating-point operations of one training step, a convolution by its direct algorithm."""
    everything = make(name)
    with FlopCounterMode(display=False) as counter:
        step(*everything)
    return counter.get_total_flops()


def published():
    """Return, for each network and card, the tool with the shortest published step and its seconds."""
    best = {}
    with open(TABLE, encoding="utf-8") as file:
        for row in csv.DictReader(line for line in file if not line.startswith("#")):
            for card in CARDS:
                if row["network"] in NETWORKS and row[card]:
                    found = (float(row[card]), row["tool"])
                    best[row["network"], card] = min(best.get((row["network"], card), found), found)
    return best


def rows():
    """Return one dictionary for each network and card: simulated and published seconds and the relative error."""
    table = []
    for (name, card), (seconds, tool) in sorted(published().items(), key=_order):
        simulated = simulate(name, CARDS[card])
        table.append(
            {
                "network": name,
                "gpu": CARDS[card],
                "simulated_s": simulated,
                "published_s": seconds,
                "tool": tool,
                "error": simulated / seconds - 1,
                "flops": flops(name),
            }
        )
    return table


def _order(item):
    (name, card), _ = item
    return list(NETWORKS).index(name), card


def show(table):
    """Print the rows and the median of the absolute relative errors."""
    print(f"{'network':10} {'simulated':>10} {'published':>10} {'error':>7}  best tool, GPU (base clock)")
    for row in table:
        print(
            f"{row['network']:10} {row['simulated_s']:9.4f}s {row['published_s']:9.3f}s {row['error']:+7.1%}  "
            f"{row['tool']}, {row['gpu']}"
        )
    print(f"median relative error: {median(table):.1%} of {len(table)} rows")


def median(table):
    """Return the median of the absolute relative errors."""
    return statistics.median(abs(row["error"]) for row in table)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the rows here as well")
    options = parser.parse_args()
    result = rows()
    show(result)
    if options.json:
        where = f"simulated on a GTX 980 and one chip of a K80, both at base clock, torch {torch.__version__}"
        told = {"where": where, "rows": result, "median_error": median(result)}
        options.json.write_text(json.dumps(told, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
