"""The trainer: any module, any loss, any optimiser of torch, on one device or several.

It does what `data_parallel.train` does by hand: a replica a device, a shard of every batch a replica, gradients summed
over the devices, and the same update everywhere. This module is the loop; `step` is what the devices do.
"""

import os
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack

import torch
import torch.distributed as dist
from torch import nn
from tqdm import auto as bars

from d2lmini.devices import try_gpu
from d2lmini.distributed.errors import DivergedError
from d2lmini.distributed.join import backend
from d2lmini.timing import Timer, clock, provenance
from d2lmini.trainer import fingerprint, state
from d2lmini.trainer.by_cells import HyperParameters
from d2lmini.trainer.checkpoint import Checkpoint
from d2lmini.trainer.comm import Comm
from d2lmini.trainer.history import History, LossLog, finite
from d2lmini.trainer.settings import Settings, check
from d2lmini.trainer.step import Replicas


class Trainer(HyperParameters):
    """Train any module, with any loss and any optimiser of torch, on one device or several.

    The model itself moves to the first device and is trained there; the other devices get copies, which end every step
    equal to it, but for what a module keeps beside its parameters, such as running means. A model may also come
    compiled: ``Trainer(torch.compile(LeNet(), dynamic=False), …)``.

    Args:
        model: The module.
        loss: ``loss(logits, y)``, a mean over its batch, or a sum when it says so (``loss.reduction == "sum"``). A
            mean, in which all examples must count the same, stays the mean over the whole batch however unevenly that
            was split.
        optimizer: ``optimizer(parameters)`` returns a ``torch.optim.Optimizer``.
        devices: Of this process; by default the first accelerator, or the CPU.
        allreduce: How gradients are summed: a name in `schedules.ALLREDUCE`, or a function that replaces each tensor of
            a list by the sum of all; by default a ring.
        buckets: The most bytes of gradients that travel together; 0: each parameter's alone.
        overlap: Whether gradients are summed while backward still runs, a bucket as soon as all replicas have finished
            it, in a second stream of each device; see `OverlappedAllreduce`. The parameters are the same, to the last
            bit. It needs more than one bucket, and is for the engine "replicas": "ddp" always does it.
        engine: Where the replicas are: "replicas" in this process, or one in each process of `torch.distributed`, with
            torch's DistributedDataParallel, "ddp", or an all-reduce of our own, "allreduce"; see `comm`. All processes
            then call the same methods, with the same batches: each takes its shard of them.
        schedule: ``schedule(optimizer)`` returns a scheduler of ``torch.optim.lr_scheduler``, which takes a step after
            each epoch.
        accumulate: The number of batches that make one update, with the gradient of all their examples together.
        clip: The largest norm of all gradients together.
        amp: ``torch.bfloat16`` or ``torch.float16`` for autocast; with float16 the loss is scaled so that small
            gradients survive.

    Raises:
        ValueError: There is no device or no parameter to train, or settings do not go together.

    >>> simgpu.enable(2)
    >>> batches = [(torch.eye(4), torch.arange(4))]
    >>> trainer = d2l.Trainer(nn.Linear(4, 4), nn.CrossEntropyLoss(), torch.optim.Adam, d2l.try_all_gpus())
    >>> history = trainer.fit(batches, num_epochs=3)
    >>> history.loss[0] > history.loss[2]
    True
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable,
        optimizer: Callable[..., torch.optim.Optimizer],
        devices: Sequence[torch.device | str] | None = None,
        **settings,
    ):
        """Move the model to the first device, copy it to the others, and make an optimiser for each."""
        self.settings = Settings(**settings)
        alone = self.settings.engine == "replicas"
        if devices is None:
            devices = [try_gpu(0 if alone else int(os.environ.get("LOCAL_RANK", 0)))]
        self.devices = [torch.device(device) for device in devices]
        ranks = dist.get_world_size() if backend() else 1
        check(self.settings, devices=self.devices, backend=backend(), ranks=ranks, model=model, loss=loss)
        self.comm = Comm(self.devices, alone)
        self.engine = Replicas(model, loss, optimizer, self.comm, self.settings)
        self.replicas, self.optimizers = self.engine.modules, self.engine.optimizers
        self.history = History()
        self._batches: Iterable | None = None  # of the last `fit`
        self._data: dict = {"fingerprint": {}, "epoch": None}  # what decides them

    def step(self, X: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        """Learn from one batch and return its loss as a tensor on the first device, without waiting for it.

        With ``accumulate=m`` every m-th call updates the parameters. A batch of fewer examples than devices uses as
        many devices as it has examples.

        Args:
            X: Examples [n, …].
            y: Labels [n].

        Raises:
            ValueError: An empty batch, or one with another number of labels.
        """
        return self.engine.total(self.engine.accumulate(X, y))

    def fit(
        self,
        train_iter: Iterable,
        num_epochs: int,
        test_iter: Iterable | None = None,
        on_epoch: Callable[[int, History], object] | None = None,
        *,
        checkpoint: str | os.PathLike | None = None,
        resume: bool = False,
    ) -> History:
        """Train for `num_epochs` passes over `train_iter` and return the `History`.

        On a terminal and in a notebook a bar shows how far the epoch is, unless the environment variable TQDM_DISABLE
        is set.

        Args:
            train_iter: yields batches, X [n, …] and y [n]; of several processes all must get the same ones.
            num_epochs: how many in all, those before a checkpoint included.
            test_iter: what to `evaluate` on after each epoch.
            on_epoch: called after each epoch as ``on_epoch(epoch, history)``, epochs counted from 1.
            checkpoint: the file to save to after each epoch.
            resume: go on from that file, if it is there; with the same data, settings and devices the parameters become
                those of a run that was never stopped, bit for bit.

        Raises:
            ValueError: when the number of epochs is not an integer of at least 1, or `train_iter` yields nothing.
            UnlikeError: where a rank has other data, or its iterator ends before the others'.
            DivergedError: for a loss or a parameter that is not finite, by the end of the epoch.
            CheckpointError: for a file that cannot be written, or is of another run.
        """
        check(self.settings, backend=backend(), epochs=num_epochs, checkpoint=checkpoint, resume=resume)
        here = {"data": fingerprint.of_data(train_iter)}
        arguments = {"epochs": f"{num_epochs}", "checkpoint": f"{checkpoint is not None}", "resume": f"{resume}"}
        # A rank that does something else would be waited for in vain.
        self.comm.agree({**here, "test data": fingerprint.of_data(test_iter), "argument of fit": arguments})
        self.engine.zero_grad()
        self.history = History(provenance=self._provenance())
        with ExitStack() as held:
            file = Checkpoint(checkpoint) if checkpoint else None
            if file:
                self.comm.on_rank_0(lambda: held.enter_context(file.held()))
            if file and resume and file.found(self.comm):
                self._go_on(file, train_iter, here)
            self._batches, self._data["fingerprint"] = train_iter, here
            for epoch in range(len(self.history.loss) + 1, num_epochs + 1):
                self._epoch(train_iter, epoch)
                if test_iter is not None:
                    self.history.accuracy.append(self.evaluate(test_iter))
                if on_epoch:
                    on_epoch(epoch, self.history)
                if file:
                    self._save(file)
        return self.history

    def evaluate(self, data_iter: Iterable) -> float:
        """Return the fraction of examples that the model classifies correctly; the devices take the batches in turn.

        Raises:
            ValueError: There is no example.
        """
        return self.engine.evaluate(data_iter)

    def save(self, path: str | os.PathLike) -> None:
        """Write a checkpoint: model, optimiser, history, random numbers.

        Raises:
            CheckpointError: The file cannot be written.
        """
        self._save(Checkpoint(path))

    def load(self, path: str | os.PathLike) -> None:
        """Take everything from a checkpoint, whatever devices it was made on.

        Random numbers of a device are restored where it has the name it had.

        Raises:
            CheckpointError: The file is not whole, or holds another model or another way to train it; the trainer is
                then as it was.
        """
        self._load(Checkpoint(path))

    def _save(self, file):
        if self._batches is not None:
            self._data["epoch"] = getattr(self._batches, "epoch", None)
        content = state.get(self.engine, self.history, self._data)
        self.comm.on_rank_0(lambda: file.write(content))

    def _load(self, file):
        content, here = self.comm.on_rank_0(file.read), self.history.provenance or self._provenance()
        history, self._data = state.take(self.engine, content, file.name)
        if here not in history.provenance:
            history.provenance = "; then ".join(filter(None, [history.provenance, here]))
        self.history, self._batches = history, None

    def _go_on(self, file, train_iter, here):
        """Load a checkpoint and let `train_iter`, whose fingerprint is `here`, begin its next epoch."""
        self._load(file)
        if self._data["fingerprint"]:
            fingerprint.check(self._data["fingerprint"], here, file.name)
        if self._data["epoch"] is not None:
            train_iter.epoch = self._data["epoch"]

    def _epoch(self, train_iter, epoch):
        """Train for one epoch, and write down what it gave."""
        log, timer = LossLog(epoch, self.engine.sums, self.comm, clock(self.devices)), Timer(self.devices)
        for X, y in self.comm.alike(_bar(train_iter, epoch) if 0 in self.comm.here else train_iter, epoch):
            log.add(self.engine.accumulate(X, y))
        self.engine.update()
        log.read()
        seconds = timer.stop()
        if not log.examples:
            raise ValueError("expected at least one batch an epoch, got none")
        # The last update of an epoch has no loss yet that would show what it has done.
        if not finite(self.replicas[0].parameters()):
            raise DivergedError(
                f"a parameter is no finite number after epoch {epoch}, although the losses were: lower "
                "the learning rate, or clip the gradients"
            )
        self.history.loss.append(log.total / log.examples)
        self.history.seconds.append(seconds)
        self.engine.advance_schedule(self.history.loss[-1])

    def _provenance(self):
        """Return where times come from, as `timing.provenance` does, and how many processes there are."""
        where = provenance(self.devices)
        return where if self.comm.alone else f"{where}, {self.comm.text()} ({self.settings.engine})"


def _bar(batches, epoch):
    """Yield the batches, with a bar on a terminal or in a notebook; it shows how fast work is queued."""
    in_notebook = bars.notebook_tqdm is not bars.std_tqdm
    hidden = bool(os.environ.get("TQDM_DISABLE")) or not (in_notebook or (sys.stderr and sys.stderr.isatty()))
    total = len(batches) if hasattr(batches, "__len__") else None
    # The bar counts: given the batches, it would begin an epoch of its own, and what is shuffled would differ then.
    with bars.tqdm(desc=f"epoch {epoch}", total=total, leave=False, unit="batch", disable=hidden) as bar:
        for batch in batches:
            yield batch
            bar.update()
