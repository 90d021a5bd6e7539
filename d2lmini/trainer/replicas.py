"""Replicas of one model in one process: what they compute together, and how they stay equal.

    learn     each device: its shard of the batch → loss → gradients, added to those of earlier batches
    update    gradients summed over the devices → scaled, clipped → the same optimiser step everywhere

The sum may begin in `learn`, while backward still runs: `backward_overlap`. It is the same sum.

A `Trainer` knows its devices only through a `Replicas`. The engines of `processes` and `ddp`, one process a device,
have its methods too; what they do otherwise stands here in methods of its own.
"""

from contextlib import nullcontext
from functools import partial
from itertools import cycle

import torch
from torch.optim.lr_scheduler import ReduceLROnPlateau

from d2lmini.data_parallel import gradients
from d2lmini.data_parallel.by_hand import split_batch
from d2lmini.data_parallel.rank_threads import together
from d2lmini.data_parallel.reducer import OverlappedAllreduce
from d2lmini.data_parallel.sync_batch_norm import is_synchronised
from d2lmini.timing import provenance
from d2lmini.trainer import compiled, replica_state
from d2lmini.trainer.replicate import replicate


class Replicas:
    """One replica of `model`, `loss` and optimiser for each of `devices`; `model` itself is the first one's.

    `optimizer` and ``settings.schedule`` make one a replica; for `allreduce` and `bucket_bytes` see `gradients`.
    `world_size` is the number of replicas, `here` the ranks of those in this process, `places` the devices of all.
    """

    def __init__(self, model, loss, optimizer, devices, allreduce, bucket_bytes, settings):
        """Make a replica of everything for each device."""
        self.allreduce = self._summing(allreduce, devices)
        self.devices, self.bucket_bytes, self.settings = devices, bucket_bytes, settings
        self.world_size, self.here, self.places = len(devices), range(len(devices)), list(map(str, devices))
        self.sums = getattr(loss, "reduction", "mean") == "sum"
        self.in_step = len(devices) > 1 and is_synchronised(model)
        compiled.check(settings.compile, devices, self.in_step)
        self.modules, self.losses = replicate(model, devices), replicate(loss, devices)
        self.forward_and_loss = compiled.forward_and_loss(self.modules, self.losses, settings.compile)
        # A compiled step's gradients may lie where the next one's will: see `compiling`.
        self.keeping = settings.compile and (settings.accumulate > 1 or len(set(devices)) < len(devices))
        self.parameters = [[p for p in m.parameters() if p.requires_grad] for m in self.modules]
        self.overlap = self._overlapped() if settings.overlap and len(devices) > 1 else None
        self.optimizers = [optimizer(params) for params in self.parameters]
        self.schedulers = [settings.schedule(o) for o in self.optimizers] if settings.schedule else []
        self.batches = self._examples = self._planned = 0  # since the last update; examples expected until the next
        scaled = settings.amp is torch.float16  # its smallest normal number is 6e-5: gradients would vanish
        self.scalers = [torch.amp.GradScaler(device.type) for device in devices] if scaled else []

    @staticmethod
    def count(devices):
        """Return the number of replicas for these devices."""
        return len(devices)

    def learn(self, X, y):
        """Learn from one batch X [n, …], y [n], and return the pairs (size, loss) of its shards.

        The loss of a shard is a tensor on its device, as the loss function gave it; nothing waits for it. A batch of
        fewer examples than devices uses as many devices as it has examples. With ``settings.accumulate`` = m only every
        m-th call updates the parameters. Raises ValueError for an empty batch, or one with another number of labels.
        """
        n = len(X)
        if not 0 < n == len(y):
            raise ValueError(f"expected one label an example and at least one, got {n} examples, {len(y)} labels")
        if not self.batches:
            self._planned = n * self.settings.accumulate
        try:
            losses = self._learn_shards(X, y, n)
        except BaseException:  # some replicas may have gradients of this batch by now, and others not
            self.forget()
            raise
        self.batches += 1
        self._examples += n
        if self.batches == self.settings.accumulate:
            self.update()
        return losses

    def _shards(self, X, y, n):
        """Return (size, X, y) of each shard, on its device; one device takes the batch of `n` as it is."""
        devices = self.devices[:n]
        if len(devices) == 1:
            return [(n, X.to(devices[0]), y.to(devices[0]))]
        return [(len(part), part, labels) for part, labels in zip(*split_batch(X, y, devices), strict=True)]

    def _learn_shards(self, X, y, n):
        """Add the gradients of a batch of `n` to each replica's, and return the pairs (size, loss) of its shards."""
        shards, last = self._shards(X, y, n), self.batches + 1 == self.settings.accumulate
        with self.overlap.sending() if self.overlap and last else nullcontext():
            losses = self._in_step(shards) if self.in_step else self._in_turn(shards)
        return [(size, loss.detach()) for (size, *_), loss in zip(shards, losses, strict=True)]

    def _in_turn(self, shards):
        """Add to the gradients those of each shard, one replica after the other, and return the shards' losses."""
        losses = []
        for rank, (size, X, y) in enumerate(shards):
            losses.append(self._loss(rank, X, y))
            self._objective(rank, losses[-1], size).backward()
            if self.keeping:
                compiled.keep_gradients(self.parameters[rank])
        return losses

    def _in_step(self, shards):
        """The same for replicas that exchange tensors on their way, so that their losses share one graph."""
        losses = together([partial(self._loss, rank, X, y) for rank, (_, X, y) in enumerate(shards)])
        torch.autograd.backward([self._objective(r, loss, shards[r][0]) for r, loss in enumerate(losses)])
        return losses

    def _loss(self, rank, X, y):
        module = self.modules[rank]
        if not module.training:
            module.train()
        with self._precision(rank):
            return self.forward_and_loss[rank](X, y)

    def _objective(self, rank, loss, size):
        """Return what the gradients are of: a mean over a shard of `size` counts for its share of the update."""
        share = 1 if self.sums else size / self._planned
        value = loss if share == 1 else loss * share
        return self.scalers[rank].scale(value) if self.scalers else value

    def update(self):
        """Take one optimiser step with the gradients of all batches since the last one; with none, do nothing."""
        if not self.batches:
            return
        if self.world_size > 1:
            self._reduce()
        as_planned = self.sums or self._examples == self._planned
        factor = 1 if as_planned else self._planned / self._examples
        for rank, (params, optimizer) in enumerate(zip(self.parameters, self.optimizers, strict=True)):
            scaler = self.scalers[rank] if self.scalers else None
            gradients.apply(params, optimizer, factor, self.settings.clip, scaler)
        self.batches = self._examples = 0
        if self.settings.schedule_every == "update":
            self.advance_schedule()

    def _reduce(self):
        if self.overlap:
            self.overlap.finish()
        else:
            gradients.reduce(self.parameters, self.allreduce, self.bucket_bytes)

    def _overlapped(self):
        return OverlappedAllreduce(self.parameters, self.bucket_bytes or 1, self.allreduce, always=False)

    def forget(self):
        """Drop the gradients of batches that wait for an update."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.batches = self._examples = 0

    def advance_schedule(self, loss=None):
        """Let the learning-rate schedules take a step; one that watches a plateau is shown `loss`."""
        for scheduler in self.schedulers:
            scheduler.step(*([loss] if isinstance(scheduler, ReduceLROnPlateau) else []))

    @torch.no_grad()
    def evaluate(self, data_iter):
        """Return the fraction of examples classified correctly; the devices take the batches in turn, counts are added.

        All evaluate with the buffers of the first replica, such as its running means, so that their number makes no
        difference. Raises ValueError when there is no example.
        """
        for module in self.modules:
            module.eval()
        self._share_buffers()
        examples, correct = 0, [0] * len(self.modules)
        for turn, (X, y) in zip(cycle(range(self.world_size)), data_iter):
            examples += len(y)
            if turn in self.here:
                i = self.here.index(turn)
                correct[i] += self._correct(i, X, y)  # stays on the device: no waiting inside the loop
        if not examples:
            raise ValueError("expected at least one example to evaluate on, got none")
        return self._over_ranks(sum(map(int, correct))) / examples

    def _correct(self, i, X, y):
        X, y = X.to(self.devices[i]), y.to(self.devices[i])
        with self._precision(i):
            return (self.modules[i](X).argmax(1) == y).sum()

    def finite(self):
        """Return whether all parameters are finite numbers; this waits for the first device."""
        return replica_state.finite(self.modules[0].parameters())

    def _share_buffers(self):
        for module in self.modules[1:]:
            for mine, first in zip(module.buffers(), self.modules[0].buffers(), strict=True):
                mine.copy_(first)

    def _precision(self, rank):
        amp = self.settings.amp
        return torch.autocast(self.devices[rank].type, dtype=amp) if amp else nullcontext()

    # -- what several processes do otherwise ---------------------------------------------------------------------------

    @staticmethod
    def _summing(allreduce, devices):
        return gradients.summing(allreduce, devices)

    def _over_ranks(self, count):
        """Return the sum of a number over all processes."""
        return count

    def total(self, shards):
        """Return the loss of a whole batch, given what `learn` returned, as a tensor on the first device."""
        n, alone = sum(size for size, _ in shards), self.sums or len(shards) == 1
        return sum(loss.to(self.devices[0]) * (1 if alone else size / n) for size, loss in shards)

    def gather(self, rows):
        """Return a list of values for each rank, given those of the replicas in this process."""
        return rows

    def first(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        return function()

    def provenance(self):
        """Return where times come from, as `timing.provenance` does."""
        return provenance(self.devices)

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self):
        """Return everything that decides the next step, once; only buffers, which may differ, for every replica."""
        return replica_state.get(self)

    def load_state_dict(self, state):
        """Make every replica what `state_dict` described, on whatever devices these are.

        With another number of replicas all get the first one's buffers. Raises ValueError, before anything changes,
        for the state of another model or of another way to train it.
        """
        replica_state.check(self.state_dict(), state)
        replica_state.load(self, state)
        self.forget()

    def own_states(self):
        """Return for each replica, of all processes, what it has for itself: its buffers."""
        return [{"buffers": dict(module.named_buffers())} for module in self.modules]
