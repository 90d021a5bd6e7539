"""The trainer: any module, any loss, any optimiser of torch, on one device or several.

It does what `data_parallel.train` does by hand: a replica a device, a shard of every batch a replica, gradients summed
over the devices, and the same update everywhere.
"""

import copy
from dataclasses import dataclass, field

import torch

from d2lmini.data_parallel import allreduce, evaluate_accuracy_gpu, split_batch
from d2lmini.devices import try_gpu
from d2lmini.timing import Timer


@dataclass
class History:
    """What a run of `Trainer.fit` recorded, one entry an epoch.

    `loss`: the mean over the training examples; `accuracy`: the fraction of test examples right, empty when there was
    no test set; `seconds`: of training only, after every device had finished, simulated on simulated devices.
    """

    loss: list = field(default_factory=list)
    accuracy: list = field(default_factory=list)
    seconds: list = field(default_factory=list)


class Trainer:
    """Train `model` with the loss ``loss(scores, y)`` and the optimiser that ``optimizer(parameters)`` returns.

    `devices` default to the first accelerator, or the CPU. `model` itself moves to the first device and is trained
    there; the other devices get copies, which end every step equal to it, but for what a module keeps beside its
    parameters, such as running means. The loss must be a mean over its batch, or a sum when it says so
    (``loss.reduction == "sum"``); a mean stays the mean over the whole batch however unevenly that was split.

    Example: ``Trainer(LeNet(), nn.CrossEntropyLoss(), partial(torch.optim.SGD, lr=0.1)).fit(train_iter, 10)``
    Raises ValueError when there is no device or no parameter to train.
    """

    def __init__(self, model, loss, optimizer, devices=None):
        """Move the model to the first device, copy it to the others, and make an optimiser for each."""
        self.devices = [torch.device(d) for d in ([try_gpu()] if devices is None else devices)]
        if not self.devices:
            raise ValueError("expected at least one device, got none")
        if not any(p.requires_grad for p in model.parameters()):
            raise ValueError("expected a model with parameters to train, got one with none that requires a gradient")
        self.loss = loss
        self.replicas = [model.to(self.devices[0])]
        self.replicas += [copy.deepcopy(model).to(device) for device in self.devices[1:]]
        self.optimizers = [optimizer([p for p in r.parameters() if p.requires_grad]) for r in self.replicas]

    def step(self, X, y):
        """Learn from one batch X [n, …], y [n] and return its loss as a tensor on the first device, without waiting.

        A batch of fewer examples than devices uses as many devices as it has examples. Raises ValueError for an empty
        batch, or one with another number of labels than of examples.
        """
        if not 0 < len(X) == len(y):
            raise ValueError(f"expected one label an example and at least one, got {len(X)} examples, {len(y)} labels")
        shards = split_batch(X, y, self.devices[: len(X)])
        losses = [self._backward(*pair, len(X)) for pair in zip(self.replicas, *shards, strict=False)]
        self._sum_gradients()
        for optimizer in self.optimizers:
            optimizer.step()
            optimizer.zero_grad()
        return sum(loss.to(self.devices[0]) for loss in losses)

    def fit(self, train_iter, num_epochs, test_iter=None, on_epoch=None):
        """Train for `num_epochs` passes over `train_iter` and return the `History`.

        After each epoch, ``on_epoch(epoch, history)`` is called, epochs counted from 1. Raises ValueError when the
        number of epochs is not an integer of at least 1, or `train_iter` yields nothing.
        """
        if not isinstance(num_epochs, int) or num_epochs < 1:
            raise ValueError(f"the number of epochs must be an integer of at least 1, got {num_epochs!r}")
        history, timer = History(), Timer(self.devices)
        for epoch in range(1, num_epochs + 1):
            timer.start()
            history.loss.append(self._epoch(train_iter))
            history.seconds.append(timer.stop())
            if test_iter is not None:
                history.accuracy.append(self.evaluate(test_iter))
            if on_epoch:
                on_epoch(epoch, history)
        return history

    def evaluate(self, data_iter):
        """Return the fraction of the examples of `data_iter` that the first replica classifies correctly.

        Raises ValueError when there is no example.
        """
        return evaluate_accuracy_gpu(self.replicas[0], data_iter, self.devices[0])

    def _epoch(self, train_iter):
        """Return the mean loss over the examples of one pass."""
        total, examples = 0, 0
        for X, y in train_iter:
            loss = self.step(X, y)
            total = total + (loss if self._sums() else loss * len(X))  # on the device: nothing waits
            examples += len(X)
        if not examples:
            raise ValueError("expected at least one batch an epoch, got none")
        return float(total) / examples

    def _sums(self):
        return getattr(self.loss, "reduction", "mean") == "sum"

    def _backward(self, replica, X, y, batch_size):
        """Add to the replica's gradients those of its shard, and return the shard's part of the batch's loss."""
        if not replica.training:
            replica.train()
        loss = self.loss(replica(X), y)
        if not self._sums() and len(X) != batch_size:
            loss = loss * (len(X) / batch_size)  # a mean over the shard counts for the shard's share of the batch
        loss.backward()
        return loss.detach()

    def _sum_gradients(self):
        """Give every replica the sum of all replicas' gradients."""
        if len(self.replicas) == 1:
            return
        for params in zip(*(replica.parameters() for replica in self.replicas), strict=True):
            if all(p.grad is None for p in params):  # not part of this loss
                continue
            for p in params:
                if p.grad is None:  # this replica had no shard
                    p.grad = torch.zeros_like(p)
            allreduce([p.grad for p in params])
