"""Train LeNet on images, on one device or several: ``python -m d2lmini.train --help``."""

import argparse
import json
import math
import os
import statistics
import sys
from functools import partial
from pathlib import Path

import torch
from torch import nn

from d2lmini import data, sim
from d2lmini.checkpoint import check_target
from d2lmini.devices import cpu, devices, num_gpus, try_gpu
from d2lmini.hardware import GPUS
from d2lmini.models import LeNet
from d2lmini.trainer import BUCKET_BYTES, Trainer

MIB = 2**20
LOADERS = {name: getattr(data, f"load_data_{name}") for name in ("digits", "mnist", "fashion_mnist")}
OPTIMIZERS = {
    "sgd": lambda o: partial(torch.optim.SGD, lr=o.lr, momentum=o.momentum, weight_decay=o.weight_decay),
    "adam": lambda o: partial(torch.optim.Adam, lr=o.lr, weight_decay=o.weight_decay),
}
SCHEDULES = {
    "none": lambda o: None,
    "cosine": lambda o: partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=o.epochs),
    "step": lambda o: partial(torch.optim.lr_scheduler.StepLR, step_size=max(1, o.epochs // 3)),
}
PRECISIONS = {"none": None, "bfloat16": torch.bfloat16, "float16": torch.float16}


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and ends with exit code 2."""

    def error(self, message):
        """Leave out the usage, which `--help` shows."""
        self.exit(2, f"{self.prog}: error: {message}\n")


def number(kind, least, above=False):
    """Return a type for argparse: an int or a float of at least `least`, or greater than it."""

    def parse(text):
        try:
            value = kind(text)
        except ValueError:
            value = math.nan
        if not math.isfinite(value) or value < least or (above and value == least):
            name = "a whole number" if kind is int else "a number"
            raise argparse.ArgumentTypeError(f"expected {name} {'above' if above else 'of at least'} {least}, got {text!r}")
        return value

    return parse


def parser():
    """Return the command line's parser."""
    made = Parser("python -m d2lmini.train", description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter,
                  epilog="Exit code: 0 done, 1 failed, 2 bad arguments, 130 interrupted.")  # fmt: skip
    what = made.add_argument_group("what to train on")
    what.add_argument("--data", choices=list(LOADERS), default="digits", help="digits come with the package, the others are downloaded once")
    what.add_argument("--folder", help="folder with the IDX files of mnist or fashion_mnist, instead of a download")
    return made
