"""All-reduce between processes of this machine: gloo's own, and the ring from scratch over gloo's messages.

The ways take turns in every round, each after a barrier, so a machine whose speed drifts drifts for all of them. Their
order is drawn anew in every round, for each finds the caches and threads as the one before left them. A round's time is
that of its slowest rank. algbw is bytes of the tensor ÷ time; busbw is algbw · 2(P − 1)/P, which for a ring is the rate
of each link (definitions of nccl-tests, PERFORMANCE.md). "plain copy" copies one of the same size inside each rank,
all ranks at once: its algbw and busbw are both bytes of the tensor ÷ time.

    python benchmarks/allreduce.py                     # 2 and 4 processes, 1 KiB to 64 MiB: some 2 minutes
    python benchmarks/allreduce.py --processes 2 --sizes 262144 --rounds 50 --json allreduce.json
"""

import argparse
import json
import math
import os
import random

import torch
import torch.distributed as dist
from outputs import writable

from d2lmini.distributed import Messages, run
from d2lmini.timing import Measurement, Timer, human, provenance

KIB, MIB = 1024, 1024**2
SIZES = [KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB]
GLOO, RING, COPY = "gloo", "ring", "plain copy"


def ways(size, messages):
    """Return name -> function, each for a tensor of `size` bytes. All elements are 0, so sums stay what they are."""
    tensor, other = torch.full((size // 4,), 0.0), torch.full((size // 4,), 0.0)
    return {
        GLOO: lambda: dist.all_reduce(tensor),
        RING: lambda: messages.allreduce(tensor),
        COPY: lambda: other.copy_(tensor),
    }


def verify(n, messages):
    """Raise unless the ring agrees with gloo to the bit, on integers that tell the ranks apart."""
    mine = (torch.arange(n) % 15 + 1).float() * 16.0 ** dist.get_rank()
    wanted = mine.clone()
    dist.all_reduce(wanted)
    if not torch.equal(messages.allreduce(mine.clone()), wanted):
        raise RuntimeError(f"rank {dist.get_rank()}: ring and gloo disagree on {n} elements")


def measure(rank, sizes, rounds, normal=False):
    """Run in every rank: return, by size and way, the seconds a call took in each round."""
    if normal:
        for thread in os.listdir("/proc/self/task"):
            os.sched_setscheduler(int(thread), os.SCHED_OTHER, os.sched_param(0))
    messages, times = Messages(), {}
    for size in sizes:
        verify(size // 4, messages)
        calls = max(1, min(20, 256 * KIB // size))  # short calls are timed several at a time
        turns = ways(size, messages)
        timers, draw = {way: Timer(["cpu"]) for way in turns}, random.Random(size)  # the same order in all ranks
        for _ in range(rounds + 2):
            for way, call in draw.sample(list(turns.items()), len(turns)):
                dist.barrier()
                timers[way].start()
                for _ in range(calls):
                    call()
                timers[way].stop()
        times[size] = {way: [lap / calls for lap in timer.times[2:]] for way, timer in timers.items()}
    return times


def slowest(ranks, size, way):
    """Return the Measurement of each round's slowest rank."""
    return Measurement(tuple(sorted(max(laps) for laps in zip(*(times[size][way] for times in ranks)))))


def mean(ratios):
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def report(processes, results):
    print(f"\n{processes} processes")
    print(f"{'size':>8}  {'way':18}{'median':>10}{'95 % interval':>22}{'algbw':>15}{'busbw':>15}{'gloo ÷':>8}")
    for size, row in results.items():
        for way, time in row.items():
            low, high = time.interval
            algbw = size / time.median / 1e9
            busbw = algbw if way == COPY else algbw * 2 * (processes - 1) / processes
            ratio = "" if way == COPY else f"{row[GLOO].median / time.median:.2f}"
            name = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
            print(
                f"{name:>8}  {way:18}{human(time.median):>10}{human(low) + ' to ' + human(high):>22}"
                f"{algbw:>10.3g} GB/s{busbw:>10.3g} GB/s{ratio:>8}"
            )
    return summary(processes, results)


def summary(processes, results):
    """Print and return the figures that the project promises."""
    ratio = {size: row[GLOO].median / row[RING].median for size, row in results.items()}
    large = [size for size in results if size >= 256 * KIB]
    figures = {"ring ÷ gloo, geometric mean": mean(ratio.values())}
    if large:
        figures["ring ÷ gloo, geometric mean from 256 KiB"] = mean([ratio[size] for size in large])
    for name, value in figures.items():
        print(f"  {name}: {value:.2f}")
    return figures


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--processes", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--sizes", type=int, nargs="+", default=SIZES, help="bytes, multiples of 4")
    parser.add_argument("--rounds", type=int, default=25, help="measured rounds, at least 6")
    parser.add_argument("--normal", action="store_true", help="let waking threads push others aside (Linux's default)")
    parser.add_argument("--json", type=writable, help="also write the results to this file")
    options = parser.parse_args()
    print(provenance(["cpu"]))
    written = {"provenance": provenance(["cpu"])}
    for processes in options.processes:
        ranks = run(measure, processes, options.sizes, options.rounds, options.normal, timeout=1800)
        results = {size: {way: slowest(ranks, size, way) for way in ranks[0][size]} for size in options.sizes}
        figures = report(processes, results)
        medians = {size: {way: time.median for way, time in row.items()} for size, row in results.items()}
        written[f"{processes} processes"] = {"figures": figures, "median_s": medians}
    if options.json:
        options.json.write_text(json.dumps(written, indent=1))


if __name__ == "__main__":
    main()
