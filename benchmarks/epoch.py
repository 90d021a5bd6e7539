"""Seconds an epoch, by how batches are made: a DataLoader that converts sample by sample, a minimal loop, the trainer.

All train one network from the same parameters on the same images with the same loss and plain SGD. They take turns,
so a machine whose speed drifts drifts for all of them, in an order drawn anew for each turn; medians and ratios are
what to quote.

    python benchmarks/epoch.py                       # the bundled digits, repeated to 6,000 images
    python benchmarks/epoch.py --data mnist --json epoch.json
"""

import argparse
import json
import random
from functools import partial

import torch
from outputs import writable
from torch import nn
from torch.utils.data import DataLoader, Dataset

import d2lmini
from d2lmini.data.datasets import Batches
from d2lmini.models.lenet import MODELS
from d2lmini.timing import Measurement, Timer, human, provenance

LR = 0.1


class PerSample(Dataset):
    """Images uint8 [N, 1, H, W] as most tutorials load them: each is converted on its own, when it is asked for."""

    def __init__(self, images, labels):
        self.images, self.labels = images.numpy(), labels.tolist()

    def __len__(self):
        """Return the number of images."""
        return len(self.images)

    def __getitem__(self, i):
        """Return image i as float32 [1, H, W] in [0, 1], and its label."""
        return torch.from_numpy(self.images[i]).to(torch.float32).div(255), self.labels[i]


def minimal_batches(images, labels, batch_size):
    for part in torch.randperm(len(images), device=images.device).split(batch_size):
        yield images[part].to(torch.float32).div_(255), labels[part]


def plain_epoch(batches, model, device):
    """The loop everybody writes."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LR)
    loss = nn.CrossEntropyLoss()
    for X, y in batches:
        value = loss(model(X.to(device)), y.to(device))
        value.backward()
        optimizer.step()
        optimizer.zero_grad()


def variants(images, labels, batch_size, device):
    """Return name -> function that trains a given model for one epoch."""
    ways = {}
    for workers in (0, 2, 4):
        loader = DataLoader(
            PerSample(images.cpu(), labels.cpu()),
            batch_size,
            shuffle=True,
            num_workers=workers,
            persistent_workers=workers > 0,
        )
        ways[f"DataLoader, {workers} workers"] = partial(plain_epoch, loader)
    ways["minimal loop"] = lambda model, device: plain_epoch(minimal_batches(images, labels, batch_size), model, device)
    batches = Batches(images, labels, batch_size, shuffle=True)
    sgd = partial(torch.optim.SGD, lr=LR)
    ways["trainer"] = lambda model, device: d2lmini.Trainer(model, nn.CrossEntropyLoss(), sgd, [device]).fit(batches, 1)
    return ways


def run(make_model, ways, rounds, device):
    """Return name -> Measurement of seconds an epoch; the ways take turns, after one unmeasured turn each."""
    timers, order = {name: Timer([device]) for name in ways}, random.Random(0)
    for turn in range(rounds + 1):
        for name in order.sample(list(ways), len(ways)):
            model = make_model(seed=turn).to(device)
            timers[name].start()
            ways[name](model, device)
            timers[name].stop()
    return {name: Measurement(tuple(sorted(timer.times[1:]))) for name, timer in timers.items()}


def report(title, results):
    best = min(m.median for name, m in results.items() if name.startswith("DataLoader"))
    loop = results["minimal loop"].median
    print(f"\n{title}\n{'':24}{'median':>10}{'95 % interval':>22}{'best loader ÷':>15}{'÷ loop':>8}")
    for name, m in results.items():
        low, high = m.interval
        interval = f"{human(low)} to {human(high)}"
        print(f"{name:24}{human(m.median):>10}{interval:>22}{best / m.median:>15.2f}{m.median / loop:>8.2f}")
    return {name: {"median_s": m.median, "interval_s": m.interval} for name, m in results.items()}


def load(name, copies):
    train, _ = getattr(d2lmini, f"load_data_{name}")(batch_size=1)
    return train.images.repeat(copies, 1, 1, 1), train.labels.repeat(copies)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", choices=["digits", "mnist", "fashion_mnist"], default="digits")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=["softmax", "mlp", "lenet"])
    parser.add_argument("--batch-size", type=int, default=256)
    parser.add_argument("--rounds", type=int, default=7, help="measured epochs of each variant, at least 6")
    parser.add_argument("--json", type=writable, help="also write the results to this file")
    options = parser.parse_args()
    device = d2lmini.try_gpu()
    images, labels = load(options.data, copies=4 if options.data == "digits" else 1)
    ways = variants(images.to(device), labels.to(device), options.batch_size, device)
    print(provenance([device]))
    results = {}
    for name in options.models:
        title = f"{name}: seconds an epoch of {len(images):,} images, batches of {options.batch_size}, on {device}"
        results[name] = report(title, run(MODELS[name], ways, options.rounds, device))
    if options.json:
        options.json.write_text(json.dumps({"provenance": provenance([device]), "seconds": results}, indent=1))


if __name__ == "__main__":
    main()
