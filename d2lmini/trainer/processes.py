"""A replica in each process: every process makes the same batches, learns from its own shard, and all stay equal.

    process 0:  batch ─ shard 0 ─ replica 0 ─ gradient 0 ─┐
    process 1:  batch ─ shard 1 ─ replica 1 ─ gradient 1 ─┴─ all-reduce between the processes: both get the sum

What is added, and in which order, is the same as in `replicas`, so that the parameters are the same to the last bit.
"""

import os
from contextlib import contextmanager, nullcontext
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.data_parallel import gradients
from d2lmini.data_parallel.by_hand import split_batch
from d2lmini.data_parallel.rank_threads import standing
from d2lmini.data_parallel.sync_batch_norm import is_synchronised
from d2lmini.distributed import Messages
from d2lmini.trainer import compiled, rng
from d2lmini.trainer.process_exchange import Group
from d2lmini.trainer.replicas import Replicas


class ProcessReplica(Replicas):
    """The replica of this process, one of `world_size`; every method is a collective call.

    The model of rank 0 and its random numbers are taken over by all. `allreduce`: a name in `schedules.ALLREDUCE`, by
    default a ring, "shared" for memory that the processes of one machine share, or a function that replaces a tensor by
    the sum over the ranks. Random numbers that a replica draws, for dropout for instance, are its rank's own.
    """

    name = "allreduce"

    def __init__(self, model, loss, optimizer, devices, allreduce, bucket_bytes, settings):
        """Make this process's replica equal to that of rank 0."""
        if settings.overlap:
            raise ValueError('overlap is for engine="replicas": "ddp" sums gradients while backward runs in any case, '
                             'and "allreduce" when it has ended')  # fmt: skip
        super().__init__(model, loss, optimizer, devices, allreduce, bucket_bytes, settings)
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.here = range(self.rank, self.rank + 1)
        self.places = self._all(str(devices[0]))
        self.in_step = self.world_size > 1 and is_synchronised(model)
        compiled.check(settings.compile, devices, self.in_step)
        self._groups = {}
        rng.set_state(self.first(rng.get_state))
        self.numbers = OwnNumbers(devices[0], self.rank)
        for tensor in (*model.parameters(), *model.buffers()):
            _from_first(tensor)

    @staticmethod
    def count(devices):
        """Return the number of replicas, of all processes; raises as `engines.choose` says."""
        if not dist.is_initialized():
            raise RuntimeError("this process has joined no others: start it with torchrun, or with distributed.run")
        if len(devices) != 1:
            raise ValueError(f"a process has one device when each has a replica, got {', '.join(map(str, devices))}")
        return dist.get_world_size()

    def _learn_shards(self, X, y, n):
        """Learn from this rank's shard of a batch of `n`; the last ranks have none where there are fewer examples."""
        active = min(n, self.world_size)
        shards = list(zip(*split_batch(X, y, [X.device] * active), strict=True))
        X, y = shards[self.rank] if self.rank < active else (X[:0], y[:0])
        with self._exchanging(active):
            loss = self._learn_shard(X.to(self.devices[0]), y.to(self.devices[0]))
        return [(len(part), loss if rank == self.rank else None) for rank, (part, _) in enumerate(shards)]

    def _learn_shard(self, X, y):
        """Add this shard's gradients to the replica's, and return its loss."""
        if not len(X):
            return None
        loss = self._loss(0, X, y)
        self._objective(0, loss, len(X)).backward()
        if self.keeping:
            compiled.keep_gradients(self.parameters[0])
        return loss.detach()

    def _loss(self, i, X, y):
        with self.numbers.drawn():
            return super()._loss(i, X, y)

    def _exchanging(self, active):
        """Let layers exchange tensors with those of the other ranks that have a shard, the first `active`."""
        if not self.in_step:
            return nullcontext()
        if active not in self._groups:
            self._groups[active] = Group(range(active))
        return standing(self._groups[active], self.rank)

    def _reduce(self):
        gradients.reduce(self.parameters, self._sum, self.bucket_bytes, self._anywhere)

    def _sum(self, flats):
        self.allreduce(flats[0])

    def _anywhere(self, used):
        used = torch.tensor(used, dtype=torch.uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        return used.tolist()

    @staticmethod
    def _summing(allreduce, devices):
        if callable(allreduce):
            return allreduce
        if allreduce == "shared":
            return _shared()
        gradients.summing(allreduce, devices)  # only to check the name
        return partial(Messages().allreduce, algorithm=allreduce or "ring")

    # -- what several processes do otherwise ---------------------------------------------------------------------------

    def _share_buffers(self):
        for buffer in self.modules[0].buffers():
            _from_first(buffer)


    def _over_ranks(self, count):
        count = torch.tensor(count)
        dist.all_reduce(count)
        return count.item()

    def total(self, shards):
        """Return the loss of a whole batch, float64, on this process's device."""
        n = sum(size for size, _ in shards)
        mine = sum(loss.double() * (1 if self.sums else size / n) for size, loss in shards if loss is not None)
        total = torch.zeros((), dtype=torch.float64, device=self.devices[0]) + mine
        dist.all_reduce(total)
        return total

    def gather(self, rows):
        """Return all ranks' lists of values, given this rank's among them."""
        return self._all(rows[self.rank])

    def first(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        box = [None, None]
        if dist.get_rank() == 0:
            try:
                box[0] = function()
            except Exception as error:
                box[1] = error
        dist.broadcast_object_list(box, 0)
        if box[1] is not None:
            raise box[1]
        return box[0]

    def provenance(self):
        """Return where times come from, and how many processes there are."""
        return f"{super().provenance()}, {self.world_size} process{'es' * (self.world_size > 1)} ({self.name})"

    def own_states(self):
        """Return for each rank what it has for itself: its buffers and its random numbers."""
        buffers = {name: buffer.cpu() for name, buffer in self.modules[0].named_buffers()}
        return self._all({"buffers": buffers, "random": self.numbers.state})

    def load_state_dict(self, state):
        """Make this replica what `state_dict` described, whatever the engine; see `Replicas`."""
        super().load_state_dict(state)
        if len(state.get("random", ())) == self.world_size:
            self.numbers.state = state["random"][self.rank]

    def _all(self, value):
        found = [None] * dist.get_world_size()
        dist.all_gather_object(found, value)
        return found


class OwnNumbers:
    """The random numbers that a replica draws: apart from those that every rank draws alike, for its batches."""

    def __init__(self, device, rank):
        """Begin with a state of this rank's own, made from the seed that all ranks have."""
        self.device, self.module = device, torch if device.type == "cpu" else torch.get_device_module(device)
        self.named = () if device.type in ("cpu", "mps") else (device,)
        seed = (torch.initial_seed() + (rank + 1) * 0x9E3779B97F4A7C15) % 2**63  # golden ratio: seeds stay apart
        self.state = torch.Generator(device).manual_seed(seed).get_state()

    @contextmanager
    def drawn(self):
        """Draw from these numbers inside."""
        others = self.module.get_rng_state(*self.named)
        self.module.set_rng_state(self.state, *self.named)
        try:
            yield
        finally:
            self.state = self.module.get_rng_state(*self.named)
            self.module.set_rng_state(others, *self.named)


@torch.no_grad()
def _from_first(tensor):
    whole = tensor.contiguous()  # itself, or a copy
    dist.broadcast(whole, 0)
    tensor.copy_(whole)


def _shared():
    """Return the all-reduce through shared memory. Raises ValueError where the ranks are on several machines."""
    here, world_size = int(os.environ.get("LOCAL_WORLD_SIZE", dist.get_world_size())), dist.get_world_size()
    if here != world_size:
        raise ValueError(f"only {here} of {world_size} ranks are on this machine: they share no memory, choose a ring")
    from d2lmini.distributed.shared_memory import SharedAllreduce  # not every system has pipes with names

    return SharedAllreduce().allreduce
