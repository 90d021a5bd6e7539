"""What the trainer costs: against the minimal hand-written loop, on two simulated GPUs, and what two processes gain.

Run `python benchmarks/trainer.py` from the repository's root; `--json FILE` writes the figures. The wanted: on one
device at most 1.05 of the minimal loop's time; on two simulated GPUs in one process at most 1.3 of the CPU time of one,
since both do the same arithmetic and only launches, copies and the allreduce come on top. Those alone are more for
small networks: two trainers with half of each batch, which exchange nothing, are the least that two GPUs can cost. The
loop is also timed over the trainer's own batches, which are made faster. What it costs to begin an epoch is in all
figures, and counts less with more `--copies` of the data. What is compared takes turns,
so that a machine whose speed drifts drifts for all, in an order that is drawn anew for each turn, so that none always
finds the caches as the same other left them: ratios are medians over the turns, each from one turn.

`--processes` measures another thing: two processes of one thread each against one, on the same batches, with each
engine. Wanted: 1.6 times as many images a second. In a round one process trains for an epoch while the other waits
without using its core, then both train together in each of the ways. Smaller buckets than LeNet's 0.49 MiB of gradients
are what DDP can send while backward still runs; the all-reduce of our own begins when backward has ended.
"""

import argparse
import json
import random
import statistics
import time
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from epoch import minimal_batches
from outputs import writable
from torch import nn

import simgpu
from d2lmini.data.datasets import load_data_digits
from d2lmini.distributed import run
from d2lmini.models.lenet import MODELS
from d2lmini.timing import human, provenance
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.1)


def minimal_epoch(model, batches):
    """The loop everybody writes, over what ``batches()`` makes: no shards, no checks, no history but the mean loss."""
    loss, optimizer = nn.CrossEntropyLoss(), SGD(model.parameters())

    def epoch():
        total = 0
        for X, y in batches():
            value = loss(model(X), y)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            total += value.detach()
        total.item()

    return epoch


def trainer_epoch(model, batches, devices):
    """The trainer on the same data."""
    trainer = Trainer(model, nn.CrossEntropyLoss(), SGD, devices)
    return lambda: trainer.fit(batches, 1)


def apart_epoch(make, batches, devices):
    """A trainer for each device and its shard of every batch: what replicas cost that exchange nothing."""
    trainers = [Trainer(make(), nn.CrossEntropyLoss(), SGD, [device]) for device in devices]

    def epoch():
        for X, y in batches:
            for trainer, *shard in zip(trainers, X.tensor_split(len(devices)), y.tensor_split(len(devices))):
                trainer.engine.accumulate(*shard)

    return epoch


def compare(epochs, rounds, clock):
    """Return name -> seconds of each turn, read from `clock`, after one unmeasured turn each."""
    seconds, order = {name: [] for name in epochs}, random.Random(0)
    for turn in range(rounds + 1):
        for name in order.sample(list(epochs), len(epochs)):
            began = clock()
            epochs[name]()
            if turn:
                seconds[name].append(clock() - began)
    return seconds


def report(title, seconds, base, wanted):
    """Print medians and ratios, and return them."""
    print(f"\n{title}")
    figures = {}
    for name, mine in seconds.items():
        ratio = statistics.median(a / b for a, b in zip(mine, seconds[base], strict=True))
        figures[name] = {"median_s": statistics.median(mine), "ratio": ratio}
        note = f"  (wanted: at most {wanted[name]})" if name in wanted else ""
        print(f"{name:36}{human(figures[name]['median_s']):>10}  {ratio:6.3f} of {base}{note}")
    return figures


def measure(make, train, rounds):
    """Return the two tables' figures for a network: one device, and two simulated ones."""
    size = f"{len(train.images):,} images, batches of {train.batch_size}"
    by_hand = partial(minimal_batches, train.images, train.labels, train.batch_size)
    one = {
        "minimal loop": minimal_epoch(make(), by_hand),
        "minimal loop, the trainer's batches": minimal_epoch(make(), lambda: train),
        "trainer": trainer_epoch(make(), train, ["cpu"]),
    }
    gpus = ["sim:0", "sim:1"]
    two = {
        "1 simulated GPU": trainer_epoch(make(), train, gpus[:1]),
        "2 simulated GPUs": trainer_epoch(make(), train, gpus),
        "2, nothing exchanged": apart_epoch(make, train, gpus),
    }
    return {
        "one_device": report(
            f"seconds an epoch on the CPU: {size}",
            compare(one, rounds, time.perf_counter),
            "minimal loop",
            {"trainer": 1.05},
        ),
        "two_devices": report(
            f"CPU seconds an epoch in one process: {size}",
            compare(two, rounds, time.process_time),
            "1 simulated GPU",
            {"2 simulated GPUs": 1.3},
        ),
    }


ALONE, WANTED = "one process", 1.6
WAYS = {  # name -> arguments of the trainer
    ALONE: {},
    "ddp": {"engine": "ddp"},
    "ddp, buckets of 0.1 MiB": {"engine": "ddp", "buckets": 2**20 // 10},
    "allreduce, ring": {"engine": "allreduce"},
    "allreduce, buckets of 0.1 MiB": {"engine": "allreduce", "buckets": 2**20 // 10},
}


def in_processes(rank, model, rounds, copies, batch_size):
    """Run in each of two processes: return way -> seconds of training in each round, as this rank saw them."""
    train = load(batch_size, copies)
    trainers = {
        way: Trainer(MODELS[model](), nn.CrossEntropyLoss(), SGD, ["cpu"], **extra)
        for way, extra in WAYS.items()
        if way != ALONE or rank == 0
    }
    seconds, order = {way: [] for way in trainers}, random.Random(0)  # the same order in both processes
    for turn in range(rounds + 1):
        for way in order.sample(list(WAYS), len(WAYS)):
            dist.barrier()
            if way in trainers:
                found = trainers[way].fit(train, 1).seconds
                seconds[way] += found if turn else []
    return seconds


def measure_processes(model, rounds, copies, batch_size):
    """Print images a second of one process and of two, and return them with the ratios."""
    ranks = run(in_processes, 2, model, rounds, copies, batch_size, threads=1, timeout=1200)
    seconds = {way: [max(both) for both in zip(*(r[way] for r in ranks if way in r), strict=True)] for way in WAYS}
    images, figures = 1500 * copies, {}
    print(f"\nimages a second on the CPU, one thread a process: {images:,} images, batches of {batch_size} over all")
    for way, mine in seconds.items():
        gains = [a / b for a, b in zip(seconds[ALONE], mine, strict=True)]
        figures[way] = {"images_a_second": images / statistics.median(mine), "ratio": statistics.median(gains)}
        note = f"  (wanted: at least {WANTED}; {min(gains):.2f} to {max(gains):.2f})" if way != ALONE else ""
        print(f"{way:34}{figures[way]['images_a_second']:10,.0f}  {figures[way]['ratio']:6.3f} of {ALONE}{note}")
    return figures


def load(batch_size, copies):
    """Return the digits to train on, each as often as `copies` says."""
    train, _ = load_data_digits(batch_size)
    train.images, train.labels = train.images.repeat(copies, 1, 1, 1), train.labels.repeat(copies)
    return train


def main(models, rounds, copies, batch_size, file, processes):
    """Measure, print the tables, and write the figures to `file`."""
    train = load(batch_size, copies)
    simgpu.enable(2)
    results = {"where": provenance(["cpu"])}
    print(results["where"])
    for name in models:
        print(f"\n== {name} ==")
        if processes:
            results[name] = measure_processes(name, rounds, copies, batch_size)
        else:
            results[name] = measure(MODELS[name], train, rounds)
    if file:
        Path(file).write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["lenet"])
    parser.add_argument("--rounds", type=int, default=15, help="measured epochs of each")
    parser.add_argument("--copies", type=int, default=1, help="how often the 1,500 digits are repeated")
    parser.add_argument("--batch-size", type=int, default=256, help="over all devices")
    parser.add_argument("--processes", action="store_true", help="measure two processes against one, and nothing else")
    parser.add_argument("--json", type=writable, metavar="FILE", help="write the figures here as well")
    options = parser.parse_args()
    main(options.models, options.rounds, options.copies, options.batch_size, options.json, options.processes)
