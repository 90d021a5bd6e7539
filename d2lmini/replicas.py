"""Replicas of one model in one process: what they compute together, and how they stay equal.

    learn     each device: its shard of the batch → loss → gradients, added to those of earlier batches
    update    gradients summed over the devices → scaled, clipped → the same optimiser step everywhere

A `Trainer` knows its devices only through a `Replicas`. Another engine, such as one process a device, has its methods.
"""

import copy
from contextlib import nullcontext
from functools import partial
from itertools import cycle

import torch
from torch import nn
from torch.optim.lr_scheduler import ReduceLROnPlateau

from d2lmini import compiling, gradients
from d2lmini.data_parallel import split_batch
from d2lmini.lockstep import together
from d2lmini.replicate import replicate
from d2lmini.sync_batch_norm import is_synchronised


class Replicas:
    """One replica of `model`, `loss` and optimiser for each of `devices`; `model` itself is the first one's.

    `optimizer` and ``settings.schedule`` make one a replica; for `allreduce` and `bucket_bytes` see `gradients.reduce`.
    """

    def __init__(self, model, loss, optimizer, devices, allreduce, bucket_bytes, settings):
        """Make a replica of everything for each device."""
        self.devices, self.allreduce, self.bucket_bytes, self.settings = devices, allreduce, bucket_bytes, settings
        self.sums = getattr(loss, "reduction", "mean") == "sum"
        self.in_step = len(devices) > 1 and is_synchronised(model)
        compiling.check(settings.compile, devices, self.in_step)
        self.modules, self.losses = replicate(model, devices), replicate(loss, devices)
        self.forward_and_loss = compiling.forward_and_loss(self.modules, self.losses, settings.compile)
        # A compiled step's gradients may lie where the next one's will: see `compiling`.
        self.keeping = settings.compile and (settings.accumulate > 1 or len(set(devices)) < len(devices))
        self.optimizers = [optimizer([p for p in m.parameters() if p.requires_grad]) for m in self.modules]
        self.schedulers = [settings.schedule(o) for o in self.optimizers] if settings.schedule else []
        self.batches = self._examples = self._planned = 0  # since the last update; examples expected until the next
        scaled = settings.amp is torch.float16  # its smallest normal number is 6e-5: gradients would vanish
        self.scalers = [torch.amp.GradScaler(device.type) for device in devices] if scaled else []

    def learn(self, X, y):
        """Learn from one batch X [n, …], y [n], and return the pairs (size, loss) of its shards.

        The loss of a shard is a tensor on its device, as the loss function gave it; nothing waits for it. A batch of
        fewer examples than devices uses as many devices as it has examples. With ``settings.accumulate`` = m only every
        m-th call updates the parameters. Raises ValueError for an empty batch, or one with another number of labels.
        """
        if not 0 < len(X) == len(y):
            raise ValueError(f"expected one label an example and at least one, got {len(X)} examples, {len(y)} labels")
        if not self.batches:
            self._planned = len(X) * self.settings.accumulate
        shards = self._shards(X, y)
        losses = self._in_step(shards) if self.in_step else self._in_turn(shards)
        losses = [(len(part), loss) for (part, _), loss in zip(shards, losses, strict=True)]
        self.batches += 1
        self._examples += len(X)
        if self.batches == self.settings.accumulate:
            self.update()
        return losses

    def _shards(self, X, y):
        """Return the pair (X, y) of each shard, on its device; one device takes the batch as it is."""
        devices = self.devices[: len(X)]
        if len(devices) == 1:
            return [(X.to(devices[0]), y.to(devices[0]))]
        return list(zip(*split_batch(X, y, devices), strict=True))

    def _in_turn(self, shards):
        """Add to the gradients those of each shard, one replica after the other, and return the shards' losses."""
        losses = []
        for rank, (X, y) in enumerate(shards):
            losses.append(self._loss(rank, X, y))
            self._objective(rank, losses[-1], len(X)).backward()
            if self.keeping:
                compiling.keep_gradients(self.modules[rank].parameters())
        return [loss.detach() for loss in losses]

    def _in_step(self, shards):
        """The same for replicas that exchange tensors on their way, so that their losses share one graph."""
        losses = together([partial(self._loss, rank, X, y) for rank, (X, y) in enumerate(shards)])
        torch.autograd.backward([self._objective(r, loss, len(shards[r][0])) for r, loss in enumerate(losses)])
        return [loss.detach() for loss in losses]

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
        if len(self.modules) > 1:
            gradients.reduce(self.modules, self.allreduce, self.bucket_bytes)
        as_planned = self.sums or self._examples == self._planned
        for rank in range(len(self.modules)):
            self._update(rank, 1 if as_planned else self._planned / self._examples)
        self.batches = self._examples = 0
        if self.settings.schedule_every == "update":
            self.advance_schedule()

    def forget(self):
        """Drop the gradients of batches that wait for an update."""
        for optimizer in self.optimizers:
            optimizer.zero_grad()
        self.batches = self._examples = 0

    def _update(self, rank, factor):
        """Let one replica take its step with its gradients times `factor`."""
        module, optimizer = self.modules[rank], self.optimizers[rank]
        scaler = self.scalers[rank] if self.scalers else None
        if factor != 1:
            gradients.scale(module.parameters(), factor)
        if self.settings.clip is not None:
            if scaler:
                scaler.unscale_(optimizer)
            # Each replica takes the norm of the same sum, so that all get the same, to the last bit.
            nn.utils.clip_grad_norm_(module.parameters(), self.settings.clip)
        if scaler:
            scaler.step(optimizer)
            scaler.update()
        else:
            optimizer.step()
        optimizer.zero_grad()

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
        for rank, (X, y) in zip(cycle(range(len(self.modules))), data_iter):
            X, y = X.to(self.devices[rank]), y.to(self.devices[rank])
            with self._precision(rank):
                scores = self.modules[rank](X)
            correct[rank] += (scores.argmax(1) == y).sum()  # stays on the device: no waiting inside the loop
            examples += len(y)
        if not examples:
            raise ValueError("expected at least one example to evaluate on, got none")
        return sum(map(int, correct)) / examples

    @torch.no_grad()
    def finite(self):
        """Return whether all parameters are finite numbers; this waits for the first device."""
        params = list(self.modules[0].parameters())
        # A finite sum has finite terms, and takes a sixth of the time; one that is not may just have grown too large.
        if torch.stack([p.sum() for p in params]).isfinite().all():
            return True
        return bool(torch.stack([p.isfinite().all() for p in params]).all())

    def _share_buffers(self):
        for module in self.modules[1:]:
            for mine, first in zip(module.buffers(), self.modules[0].buffers(), strict=True):
                mine.copy_(first)

    def _precision(self, rank):
        amp = self.settings.amp
        return torch.autocast(self.devices[rank].type, dtype=amp) if amp else nullcontext()

    # -- state -------------------------------------------------------------------------------------------------------

    def state_dict(self):
        """Return everything that decides the next step, once; only buffers, which may differ, for every replica."""
        return {
            "optimizer made": {"the class": type(self.optimizers[0]).__name__, **_plain(self.optimizers[0].defaults)},
            "model": self.modules[0].state_dict(),
            "optimizer": self.optimizers[0].state_dict(),
            "schedule": self.schedulers[0].state_dict() if self.schedulers else None,
            "scaler": self.scalers[0].state_dict() if self.scalers else None,
            "buffers": [dict(module.named_buffers()) for module in self.modules],
        }

    def load_state_dict(self, state):
        """Make every replica what `state_dict` described, on whatever devices these are.

        With another number of replicas all get the first one's buffers. Raises ValueError, before anything changes,
        for the state of another model or of another way to train it.
        """
        self._check_state(state)
        found = state["buffers"] if len(state["buffers"]) == len(self.modules) else state["buffers"][:1]
        for rank, (module, buffers) in enumerate(zip(self.modules, cycle(found))):
            module.load_state_dict(state["model"])
            for name, buffer in module.named_buffers():
                buffer.copy_(buffers[name])
            # Copies: an optimiser keeps the tensors it is given when they are on its device already.
            self.optimizers[rank].load_state_dict(copy.deepcopy(state["optimizer"]))
            for made, key in ((self.schedulers, "schedule"), (self.scalers, "scaler")):
                if made:
                    made[rank].load_state_dict(copy.deepcopy(state[key]))
        self.forget()

    def _check_state(self, state):
        ours = self.state_dict()
        for key in ("schedule", "scaler"):
            if (ours[key] is None) != (state[key] is None):
                raise ValueError(f"saved {'without' if ours[key] else 'with'} a {key}, and this trainer is not")
        for what, facts in (("model", _shapes), ("optimiser", _groups)):
            mine, theirs = facts(ours), facts(state)
            different = [name for name in {**mine, **theirs} if mine.get(name) != theirs.get(name)]
            if different:
                name = different[0]
                sides = f"{theirs.get(name)} there, {mine.get(name)} here"
                raise ValueError(f"saved with another {what}: {name} is {sides}")


def _shapes(state):
    return {name: list(getattr(value, "shape", ())) for name, value in state["model"].items()}


def _groups(state):
    sizes = [len(group["params"]) for group in state["optimizer"]["param_groups"]]
    return {**state["optimizer made"], "the number of parameters in its groups": sizes}


def _plain(settings):
    return {name: value for name, value in settings.items() if not isinstance(value, torch.Tensor)}
