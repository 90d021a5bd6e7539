"""What the chapters' processes do with the trainer: LeNet on the digits, a replica a process; see `distributed.run`.

    from d2lmini.distributed import run
    ranks = run(trainer.train, 2)                     # a list: what each of two processes found
    alone = trainer.train_alone(2)                    # the same replicas in this process
    ranks[0]["ddp"].parameters, alone.parameters      # equal, to the last bit
"""

from dataclasses import dataclass
from functools import partial

import torch
from torch import nn

from d2lmini.data.datasets import load_data_digits
from d2lmini.devices import threads
from d2lmini.models.lenet import LeNet
from d2lmini.trainer.history import History
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@dataclass
class Trained:
    """What training gave: the `history`, the `parameters`, and how many images this rank's replica `learnt` from."""

    history: History
    parameters: list
    learnt: int


def train(rank, engines=("ddp", "allreduce"), epochs=2, batch_size=64, **settings):
    """Train with each engine, as one rank of several, on one thread; return engine -> Trained.

    settings: further arguments of the trainer, such as ``buckets=2**16`` or, for "allreduce", ``allreduce="tree"``.
    """
    return {engine: _train(["cpu"], engine, epochs, batch_size, settings) for engine in engines}


def train_alone(replicas, epochs=2, batch_size=64, **settings):
    """Do in this process, with so many replicas on the CPU, what `train` does in as many processes."""
    return _train(["cpu"] * replicas, "replicas", epochs, batch_size, settings)


def _train(devices, engine, epochs, batch_size, settings):
    with threads(1):  # the order in which sums are added depends on it
        train_iter, test_iter = load_data_digits(batch_size)
        model, learnt = LeNet(), []
        model.register_forward_hook(lambda module, args, _: learnt.append(len(args[0]) * module.training))
        trainer = Trainer(model, nn.CrossEntropyLoss(), SGD, devices, engine=engine, **settings)
        history = trainer.fit(train_iter, epochs, test_iter)
        return Trained(history, [p.detach() for p in model.parameters()], sum(learnt))
