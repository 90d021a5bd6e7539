"""Train from the command line: ``python -m d2lmini.train --help`` says what there is to choose.

python -m d2lmini.train --data digits --devices 2 --epochs 10 --allreduce ring --json results.json
python -m d2lmini.train --data digits --kind sim --devices 8 --engine ddp
torchrun --nproc-per-node=2 -m d2lmini.train --data digits --epochs 10 --engine ddp
"""

import statistics
import sys
import traceback
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

import simgpu
from d2lmini.data import datasets
from d2lmini.devices import choice, cpu, num_gpus, try_all_gpus
from d2lmini.distributed import join
from d2lmini.distributed.errors import EXPECTED, RankError, of_rank, sentence
from d2lmini.distributed.failures import Report
from d2lmini.models.lenet import MODELS
from d2lmini.timing import human
from d2lmini.trainer import atomic_files, fingerprint
from d2lmini.trainer import options as arguments
from d2lmini.trainer.checkpoint import Checkpoint
from d2lmini.trainer.trainer import Trainer
from d2lmini.wording import printable, quoted

PROGRAM = "python -m d2lmini.train"
LABELS = {"lenet": "LeNet", "mlp": "MLP", "softmax": "softmax regression"}


def main(words=None):
    """Train as the command line says, and return the exit code; every failure is one line on stderr."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):  # not where it is closed, or a notebook's
            stream.reconfigure(errors="backslashreplace")  # a name, or a ×, that a terminal's encoding has not
    options = None
    try:
        if join.launched():
            return in_group(words)
        options = arguments.parse(words)
        start(options)
    except KeyboardInterrupt:
        who = f"{PROGRAM}: error: " if join.launched() else ""  # others say something too
        print(f"{who}interrupted{go_on(options)}", file=sys.stderr)
        return 130
    except EXPECTED as error:
        if options and options.traceback:
            traceback.print_exc()
        print(f"{PROGRAM}: error: {_told(error)}", file=sys.stderr)
        return 1
    return 0


def _told(error):
    """Return an error's sentence; of a simulated rank's, that of what it raised, if all ranks raised it."""
    cause = error.__cause__
    return of_rank(cause, error.rank) if isinstance(error, RankError) and hasattr(cause, "rank") else sentence(error)


def in_group(words):
    """Do the same as one rank of several: when one fails, one of them says it, and torchrun ends the others."""

    def report(seconds=join.CONNECT_S):
        return Report(join.connect(seconds), join.rank(), join.world_size(), PROGRAM)

    options = arguments.parse(words, lambda line: report().say(line))
    made = report(options.timeout)
    made.end_with_parent()
    made.call(partial(run_as_rank, options, made.store), go_on(options), options.traceback)
    return 0


def run_as_rank(options, store):
    """Join the other ranks and train with them."""
    device = join.device(options.kind)
    join.join(store, device, options.timeout)
    run(options, [device])
    dist.barrier()  # nobody ends, and perhaps the store with it, before all are done
    dist.destroy_process_group()


def go_on(options):
    """Return what to say about going on after an interrupt."""
    return f": go on with --checkpoint {quoted(options.checkpoint)} --resume" if options and options.checkpoint else ""


def start(options):
    """Train in this process, on all devices at once, or with a simulated rank for each."""
    devices = choose_devices(options.devices, options.kind, options.gpu)
    if options.engine == "ddp":
        simgpu.spawn(lambda rank: run(options, [devices[rank]]))
    else:
        run(options, devices)


def run(options, where):
    """Train on the devices `where`, print the table while it grows, write the results, and return them.

    Of several processes, rank 0 prints and writes.
    """
    torch.manual_seed(options.seed)
    train_iter, test_iter = getattr(datasets, f"load_data_{options.data}")(options.batch_size, seed=options.seed)
    trainer = make_trainer(options, where)
    trainer.comm.agree({"options": fingerprint.of_options(options)})
    show = _show if join.rank() == 0 else (lambda line: None)
    show(describe(options, trainer, train_iter, test_iter))
    if options.resume and not Checkpoint(options.checkpoint).found(trainer.comm):
        show(f"there is no {printable(options.checkpoint)} yet: starting from the beginning")
    add_rows = table(show)
    history = trainer.fit(
        train_iter, options.epochs, test_iter, add_rows, checkpoint=options.checkpoint, resume=options.resume
    )
    add_rows(options.epochs, history)
    results = summary(options, trainer, history, train_iter.num_examples)
    show(
        f"{history.provenance}: {human(results['seconds_an_epoch'])} an epoch, "
        f"{results['images_a_second']:,.0f} images/s"
    )
    if options.json:
        trainer.comm.on_rank_0(partial(atomic_files.write_json, options.json, results))
    return results


def _show(line):
    try:
        print(line, flush=True)
    except OSError as error:
        raise OSError(error.errno, error.strerror, "standard output") from error


def choose_devices(count, kind, gpu):
    """Return `count` devices, or by default all accelerators; D2LMINI_DEVICES, where it is set, decides for "auto".

    Raises:
        RuntimeError: When there are not so many.
    """
    forced = choice()
    if kind == "cpu":
        return [cpu()] * (count or 1)
    chosen = forced if kind == "auto" else kind
    if chosen == "sim" or (not chosen and (count or 1) > max(1, num_gpus())):
        simgpu.enable(count or 2, gpu=gpu)
        return [torch.device("sim", i) for i in range(torch.sim.device_count())]
    found = try_all_gpus()
    usable = [] if kind == "real" and found == [cpu()] else found
    if len(usable) < (count or 1):
        what = "accelerators" if kind == "real" else f"devices, as D2LMINI_DEVICES={forced} leaves them"
        raise RuntimeError(f"expected {count or 1} or more {what}, found {len(usable)}: choose another --kind")
    return usable[:count]


def make_trainer(options, where):
    """Return the trainer that the options describe, on the devices `where`."""
    optimizer = {
        "sgd": partial(torch.optim.SGD, lr=options.lr, momentum=options.momentum, weight_decay=options.weight_decay),
        "adam": partial(torch.optim.Adam, lr=options.lr, weight_decay=options.weight_decay),
    }[options.optimizer]
    return Trainer(
        MODELS[options.model](seed=options.seed), nn.CrossEntropyLoss(), optimizer, where, **arguments.training(options)
    )


def describe(options, trainer, train_iter, test_iter):
    """Return a line that says what is trained, where and on what."""
    names = ", ".join(trainer.comm.places)
    if join.backend():
        names += f" ({options.engine} over {join.backend()})"
    return (
        f"{LABELS[options.model]}, {parameters(trainer):,} parameters, on {names}; {options.data}: "
        f"{train_iter.num_examples:,} images to train on, {test_iter.num_examples:,} to test on"
    )


def parameters(trainer):
    """Return how many numbers the model learns."""
    return sum(p.numel() for p in trainer.replicas[0].parameters())


def table(show):
    """Return a function of an epoch's number and a history that shows the lines of its table not shown yet."""
    shown = []

    def add(_, history):
        lines = str(history).splitlines()[:-1]  # the last one says where the seconds come from
        for line in lines[len(shown) :]:
            show(line)
        shown[:] = lines

    return add


def summary(options, trainer, history, examples):
    """Return the settings and the results as plain values."""
    seconds = statistics.median(history.seconds)  # the first epoch also warms up
    epochs = [
        {"epoch": i, "loss": loss, "accuracy": accuracy, "seconds": s}
        for i, (loss, accuracy, s) in enumerate(
            zip(history.loss, history.accuracy, history.seconds, strict=True), start=1
        )
    ]
    return {
        "settings": vars(options),
        "devices": trainer.comm.places,
        "engine": options.engine,
        "world_size": trainer.comm.world_size,
        "backend": join.backend(),
        "parameters": parameters(trainer),
        "clock": history.provenance.split(" ")[0],
        "provenance": history.provenance,
        "torch": torch.__version__,
        "epochs": epochs,
        "seconds_an_epoch": seconds,
        "images_a_second": examples / seconds,
    }
