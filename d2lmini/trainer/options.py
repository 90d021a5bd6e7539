"""The command line of `d2lmini.train`: what may be asked for, with units and defaults, each mistake in one line."""

import argparse
import math
from functools import partial
from pathlib import Path

import torch

from d2lmini.collectives.schedules import ALLREDUCE
from d2lmini.distributed import join
from d2lmini.distributed.errors import CheckpointError
from d2lmini.models.lenet import MODELS
from d2lmini.trainer import atomic_files
from d2lmini.trainer.checkpoint import Checkpoint
from d2lmini.trainer.settings import ENGINES, Settings, check
from d2lmini.wording import printable, shortened
from simgpu.hardware.links import GPUS

MIB = 2**20
JSON_START, JSON_EPOCH = 4096, 128  # bytes of the results: at most, but for long names, and for each epoch
DATA = ("digits", "mnist", "fashion_mnist")
MOST = 2**63 - 1  # the largest whole number that torch takes
DEVICES = 128  # of one type, which torch numbers with 8 bits
EPILOG = """The times in the table are simulated where the devices are, else measured; a line under it says on what
machine. Under torchrun each process has one device and one replica: torchrun --nproc-per-node=2 -m d2lmini.train …;
rank 0 prints and writes. Exit code: 0 done, 1 failed, 2 bad arguments, 130 interrupted."""


class Help(argparse.ArgumentDefaultsHelpFormatter):
    """Names the defaults that are not nothing."""

    def _get_help_string(self, action):
        return action.help if action.default in (None, False) else super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """Says in one line what is wrong, and ends with exit code 2; of several processes one says it."""

    say = None

    def error(self, message):
        """Leave out the usage, which ``--help`` shows."""
        message = printable(shortened(message))
        self.exit(2, self.say(message) if self.say else f"{self.prog}: error: {message}\n")

    def print_help(self, file=None):
        """Let rank 0 alone explain."""
        if join.rank() == 0:
            super().print_help(file)


def parse(words=None, say=None):
    """Return the options given by `words`, the process's arguments if None; exits with code 2 and one line if bad.

    Args:
        say: Where several processes parse the same words, what prints a line once.
    """
    made = _parser()
    made.say = say
    options = made.parse_args(words)
    for name, value in vars(options).items():
        if isinstance(value, list):  # argparse takes the "--" of "--lr=--" away
            made.error(f"argument --{name.replace('_', '-')}: expected one argument")
    _complete(made, options)
    if join.rank() == 0:  # others may be on another machine, with other files
        _check_files(made, options)
    return options


def _complete(made, options):
    """Fill in what depends on other options, and refuse what does not go together."""
    torchrun = join.launched()
    options.engine = options.engine or ("ddp" if torchrun else "replicas")
    simulated = options.engine == "ddp" and options.kind == "sim"
    try:
        check(
            Settings(**training(options)),
            backend="gloo" if torchrun else "simccl" if simulated else None,
            resume=options.resume,
            checkpoint=options.checkpoint,
            torchrun=torchrun,
            kind=options.kind,
            count=options.devices,
        )
    except ValueError as error:
        made.error(f"argument --{error}")
    if options.engine != "ddp":
        options.allreduce = options.allreduce or "ring"
    if options.engine == "allreduce":
        options.kind = "cpu"


def training(options):
    """Return how to train: the arguments of `Trainer` of those names."""
    schedule = {
        "none": None,
        "cosine": partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=options.epochs),
        "step": partial(torch.optim.lr_scheduler.StepLR, step_size=-(-options.epochs // 3)),
    }[options.schedule]
    amp = None if options.amp == "none" else getattr(torch, options.amp)
    names = ("allreduce", "accumulate", "clip", "overlap", "engine")
    return {
        **{name: getattr(options, name) for name in names},
        "buckets": int(options.buckets * MIB),
        "schedule": schedule,
        "amp": amp,
    }


def _check_files(made, options):
    file = options.checkpoint and Checkpoint(options.checkpoint)
    if options.json:
        try:
            atomic_files.check(options.json, JSON_START + JSON_EPOCH * min(options.epochs, 10**5))
        except OSError as error:
            made.error(f"argument --json: {printable(options.json)}: {error.strerror}")
        if file and atomic_files.real(options.json) in (file.path, file.previous):
            made.error(f"argument --json: {printable(options.json)} is a file of the checkpoint: choose another")
    if file:
        try:
            file.check()
            there = file.is_there()
        except CheckpointError as error:
            made.error(f"argument --checkpoint: {error}")
        if there and not options.resume:
            made.error(f"argument --checkpoint: {file.name} is there: go on from it with --resume, or choose another")


def number(kind, least, most=None):
    """Return a type for argparse: a finite float, or an int that torch takes, from `least` up to `most`."""
    most = most or (MOST if kind is int else math.inf)

    def convert(text):
        try:
            value = kind(text)
        except ValueError:  # Python also refuses thousands of digits
            value = math.inf if text.isdecimal() else math.nan
        what = "a whole number" if kind is int else "a number"
        if value == most == math.inf:
            raise argparse.ArgumentTypeError(f"expected {what}, got {text!r}, which is too large")
        if value > most:
            raise argparse.ArgumentTypeError(f"expected {what} of at most {most:,}, got {text!r}")
        if not math.isfinite(value) or value < least:
            raise argparse.ArgumentTypeError(f"expected {what} of at least {least}, got {text!r}")
        return value

    return convert


def _parser():
    made = Parser(
        "python -m d2lmini.train",
        description="Train a network on small images, on one device or several.",
        formatter_class=Help,
        epilog=EPILOG,
    )
    for title, add in (
        ("data and devices", _add_data),
        ("how to train", _add_training),
        ("devices together", _add_together),
        ("results and checkpoints", _add_results),
    ):
        add(made.add_argument_group(title).add_argument)
    return made


def _add_data(add):
    add(
        "--data",
        choices=DATA,
        default="digits",
        help="digits come with the package; the others are downloaded once, or read from the folder D2LMINI_DATA",
    )
    add("--batch-size", type=number(int, 1), default=64, metavar="N", help="examples in a batch, over all devices")
    add(
        "--devices",
        type=number(int, 1, most=DEVICES),
        metavar="N",
        help="how many, each with a replica; by default all accelerators, else the CPU",
    )
    add(
        "--kind",
        choices=("auto", "real", "sim", "cpu"),
        default="auto",
        help="of the devices: simulated GPUs, replicas on the CPU, real accelerators; auto: real ones where there are "
        "enough, the CPU for one device, else simulated GPUs",
    )
    add(
        "--gpu",
        choices=list(GPUS),
        default="GTX 1080",
        metavar="NAME",
        help="the GPU that is simulated: a name in simgpu.hardware.GPUS",
    )


def _add_training(add):
    add("--model", choices=list(MODELS), default="lenet", help="the network: see d2lmini.models")
    add("--epochs", type=number(int, 1), default=10, metavar="N", help="passes over the training data")
    add("--optimizer", choices=("sgd", "adam"), default="sgd", help="of torch.optim")
    add("--lr", type=number(float, 0), default=0.05, metavar="RATE", help="learning rate; for adam 0.001 is usual")
    add("--momentum", type=number(float, 0), default=0.9, metavar="M", help="of sgd")
    add("--weight-decay", type=number(float, 0), default=0.0, metavar="W", help="of either optimizer")
    add(
        "--schedule",
        choices=("none", "cosine", "step"),
        default="none",
        help="learning rate: constant, to 0 as a cosine, or × 0.1 after each third",
    )
    add("--accumulate", type=number(int, 1), default=1, metavar="N", help="batches in an update")
    add("--clip", type=number(float, 0), metavar="NORM", help="largest norm of all gradients together")
    add("--amp", choices=("none", "bfloat16", "float16"), default="none", help="type for autocast")
    add("--seed", type=number(int, 0), default=0, metavar="N", help="of all random numbers")


def _add_together(add):
    add(
        "--engine",
        choices=ENGINES,
        help="replicas: all in one process; ddp: a process each, gradients summed by torch's DistributedDataParallel, "
        "or with --kind sim a simulated rank each; allreduce: a process each, gradients summed as --allreduce says; by "
        "default ddp under torchrun, else replicas",
    )
    add("--allreduce", choices=list(ALLREDUCE), help="how gradients are summed, by default in a ring")
    add(
        "--buckets",
        type=number(float, 0, most=2**40),
        default=25.0,
        metavar="MIB",
        help="MiB (2^20 bytes) of gradients that travel together; 0: each parameter's own",
    )
    add(
        "--overlap",
        action="store_true",
        help="sum gradients while backward still runs, a bucket as soon as all replicas have finished it; the results "
        "stay the same. There must be several: see --buckets. Only with --engine replicas",
    )
    add(
        "--timeout",
        type=number(int, 1, most=10**6),
        default=60,
        metavar="S",
        help="seconds that a process waits for another, after which all end; raise it where one works alone for "
        "longer, such as rank 0 on a large checkpoint",
    )


def _add_results(add):
    add("--json", type=Path, metavar="FILE", help="also write the results, with all settings, here")
    add(
        "--checkpoint",
        type=Path,
        metavar="FILE",
        help="save here after each epoch; the one before is kept as FILE.previous",
    )
    add(
        "--resume",
        action="store_true",
        help="go on from FILE, if it is there, to what a run that never stopped would give; other options or data are "
        "refused",
    )
    add("--traceback", action="store_true", help="where it fails, also show the lines of the program that led there")
