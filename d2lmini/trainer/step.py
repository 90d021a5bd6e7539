"""The step of the trainer: what replicas of one model compute together, and how they stay equal.

    accumulate   each replica: its shard of the batch → loss → gradients, added to those of earlier batches
    update       gradients summed over the replicas → scaled, clipped → the same optimiser step everywhere

Where the replicas are is known to `comm` alone; see there. The sum may begin in `accumulate`, while backward runs:
`reducer` is `OverlappedAllreduce` or `DdpReducer` then, else `AfterBackward`. It is the same sum.
"""

import copy
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from itertools import cycle
from typing import Protocol

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from d2lmini.collectives.buckets import reduce_gradients
from d2lmini.data_parallel.rank_threads import together
from d2lmini.data_parallel.reducer import OverlappedAllreduce
from d2lmini.data_parallel.sync_batch_norm import is_synchronised
from d2lmini.distributed.errors import UnlikeError
from d2lmini.trainer import fingerprint


class Reducer(Protocol):
    """What gives every replica the sum of all replicas' gradients."""

    def sending(self, now: bool) -> AbstractContextManager:
        """Return a context for a backward pass, in which sums may begin if it is the last of an update: `now`."""

    def finish(self) -> None:
        """Leave in every parameter's ``grad`` the sum over all replicas, or let its device wait for it."""


class AfterBackward:
    """A `Reducer` that begins when backward has ended.

    Args:
        replicas: lists of parameters, alike, one list for each replica of this process.
        allreduce: replaces each tensor of a list, one for each replica, by the sum of all.
        bucket_bytes: the most bytes of gradients that travel together; 0: each parameter's alone.
        any_rank: maps this process's `used` flags to their logical OR over all processes.
    """

    def __init__(self, replicas, allreduce, bucket_bytes, any_rank):
        self.reduce = partial(reduce_gradients, replicas, allreduce, bucket_bytes, any_rank)

    def sending(self, now):
        """Return a context that does nothing: no sum begins in it."""
        return nullcontext()

    def finish(self):
        """Sum all gradients."""
        self.reduce()


class Replicas:
    """The replicas of `model`, `loss` and optimiser in this process; `model` itself is the first one.

    `optimizer` and ``settings.schedule`` make one a replica.
    """

    def __init__(self, model, loss, optimizer, comm, settings):
        """Make a replica of everything for each device; of several processes all begin with rank 0's parameters."""
        self.comm, self.settings = comm, settings
        self.sums = getattr(loss, "reduction", "mean") == "sum"
        self.exchanging = comm.world_size > 1 and is_synchronised(model)
        self.modules, self.losses = replicate(model, comm.devices), replicate(loss, comm.devices)
        self.parameters = [[p for p in m.parameters() if p.requires_grad] for m in self.modules]
        self.optimizers = [optimizer(params) for params in self.parameters]
        self.schedulers = [settings.schedule(o) for o in self.optimizers] if settings.schedule else []
        scaled = settings.amp is torch.float16  # its smallest normal number is 6e-5: gradients would vanish
        self.scalers = [torch.amp.GradScaler(device.type, enabled=scaled) for device in comm.devices]
        self.fingerprint = fingerprint.of_training(self.modules[0], loss, self.optimizers[0], self.schedulers, settings)
        self.batches = self._examples = self._planned = 0  # since the last update; examples expected until the next
        comm.agree({**self.fingerprint, "engine": fingerprint.of_engine(settings)})
        if not comm.alone:  # in one process they are copies of one
            comm.broadcast([[*self.modules[0].parameters(), *self.modules[0].buffers()]])
        self.reducer = self._reducer()

    def _reducer(self) -> Reducer:
        buckets = self.settings.buckets
        if self.settings.engine == "ddp":
            from d2lmini.trainer.ddp_reducer import DdpReducer  # takes a second to import

            return DdpReducer(self.modules[0], self.losses[0], buckets)
        allreduce = self.comm.summing(self.settings.allreduce)
        if self.settings.overlap and self.comm.world_size > 1:
            return OverlappedAllreduce(self.parameters, buckets or 1, allreduce, always=False)
        return AfterBackward(self.parameters, allreduce, buckets, self.comm.any_rank)

    def accumulate(self, X, y):
        """Add the gradients of one batch X [n, …], y [n]; return its shards' pairs (size, loss), by rank.

        The loss of a shard is a tensor on its device, as the loss function gave it, or None where another process has
        it; nothing waits for it. A batch of fewer examples than replicas uses as many as it has examples. With
        ``settings.accumulate`` = m only every m-th call updates the parameters.

        Raises:
            ValueError: For an empty batch, or one with another number of labels.
        """
        n = len(X)
        if not 0 < n == len(y):
            raise ValueError(f"expected one label an example and at least one, got {n} examples, {len(y)} labels")
        if not self.batches:
            self._planned = n * self.settings.accumulate
        sizes, shards = self.comm.shard(X, y)
        try:
            with self.reducer.sending(now=self.batches + 1 == self.settings.accumulate):
                losses = (self._together if self.exchanging else self._in_turn)(shards)
        except BaseException:  # some replicas may have gradients of this batch by now, and others not
            self.zero_grad()
            raise
        self.batches += 1
        self._examples += n
        if self.batches == self.settings.accumulate:
            self.update()
        found = dict(zip(self.comm.here, losses))
        return [(size, found[rank].detach() if rank in found else None) for rank, size in enumerate(sizes)]

    def _in_turn(self, shards):
        """Add to the gradients those of each shard, one replica after the other, and return the shards' losses."""
        losses = []
        for i, (X, y) in enumerate(shards):
            losses.append(self._loss(i, X, y))
            self._weighted_loss(i, losses[-1], len(X)).backward()
        return losses

    def _together(self, shards):
        """The same for replicas that exchange tensors on their way, so that their losses share one graph."""
        functions = [partial(self._loss, i, X, y) for i, (X, y) in enumerate(shards)]
        losses = together(functions)
        torch.autograd.backward([self._weighted_loss(i, loss, len(shards[i][0])) for i, loss in enumerate(losses)])
        return losses

    def _loss(self, i, X, y):
        module = self.modules[i]
        if not module.training:
            module.train()
        with self._precision(i), self.comm.drawing():
            return self.losses[i](module(X), y) if self.settings.engine != "ddp" else self.reducer.loss(X, y)

    def _weighted_loss(self, i, loss, size):
        """Return what the gradients are of: a mean over a shard of `size` counts for its share of the update."""
        share = 1 if self.sums else size / self._planned
        return self.scalers[i].scale(loss if share == 1 else loss * share)

    def update(self):
        """Take one optimiser step with the gradients of all batches since the last one; with none, do nothing."""
        if not self.batches:
            return
        if self.comm.world_size > 1:
            self.reducer.finish()
        as_planned = self.sums or self._examples == self._planned
        factor = 1 if as_planned else self._planned / self._examples
        for each in zip(self.parameters, self.optimizers, self.scalers, strict=True):
            self._apply(*each, factor)
        self.batches = self._examples = 0

    def _apply(self, params, optimizer, scaler, factor):
        """Let an optimiser take its step with the gradients times `factor`, and drop them."""
        if factor != 1:
            torch._foreach_mul_([p.grad for p in params if p.grad is not None], factor)
        if self.settings.clip is not None:
            scaler.unscale_(optimizer)
            # Each replica takes the norm of the same sum, so that all get the same, to the last bit.
            nn.utils.clip_grad_norm_(params, self.settings.clip)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()

    def zero_grad(self):
        """Drop the gradients of batches that wait for an update."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.batches = self._examples = 0

    def advance_schedule(self, loss=None):
        """Let the learning-rate schedules take a step; one that watches a plateau is shown `loss`."""
        for scheduler in self.schedulers:
            scheduler.step(*([loss] if isinstance(scheduler, ReduceLROnPlateau) else []))

    def total(self, shards):
        """Return the loss of a whole batch, given what `accumulate` returned, as a tensor on the first device here."""
        n, alone = sum(size for size, _ in shards), self.sums or len(shards) == 1
        return self.comm.add(
            sum(loss.to(self.comm.devices[0]) * (1 if alone else size / n) for size, loss in shards if loss is not None)
        )

    @torch.no_grad()
    def evaluate(self, data_iter):
        """Return the fraction of examples classified correctly; the ranks take the batches in turn, counts are added.

        All evaluate with the buffers of rank 0, such as its running means, so that their number makes no difference.

        Raises:
            ValueError: When there is no example.
        """
        for module in self.modules:
            module.eval()
        self.comm.broadcast([list(module.buffers()) for module in self.modules])
        examples, correct = 0, [0] * len(self.modules)
        for turn, (X, y) in zip(cycle(range(self.comm.world_size)), data_iter):
            examples += len(y)
            if turn in self.comm.here:
                i = self.comm.here.index(turn)
                correct[i] += self._correct(i, X, y)  # stays on the device: no waiting inside the loop
        if not examples:
            raise ValueError("expected at least one example to evaluate on, got none")
        found = self.comm.gather([(examples, int(count)) for count in correct])
        for rank, (count, _) in enumerate(found):
            if count != found[0][0]:
                raise UnlikeError(f"rank {rank} has {count} examples to evaluate on, rank 0 has {found[0][0]}")
        return sum(count for _, count in found) / examples

    def _correct(self, i, X, y):
        X, y = X.to(self.comm.devices[i]), y.to(self.comm.devices[i])
        with self._precision(i):
            return (self.modules[i](X).argmax(1) == y).sum()

    def _precision(self, i):
        amp = self.settings.amp
        return torch.autocast(self.comm.devices[i].type, dtype=amp) if amp else nullcontext()


def replicate(thing, devices):
    """Return a module for each device: `thing` itself, moved to the first, and copies of it that share nothing with it.

    A function, which has nothing to move, serves all devices.
    """
    if not isinstance(thing, nn.Module):
        return [thing] * len(devices)
    # Copied before anything is moved: ``to`` returns the tensor itself when it is there already, a copy never does.
    modules = [thing, *(copy.deepcopy(thing) for _ in devices[1:])]
    return [module.to(device) for module, device in zip(modules, devices, strict=True)]
