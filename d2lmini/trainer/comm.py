"""How the replicas of a trainer come together. The trainer's step is written once, over one of these two:

    Devices      all replicas in this process: shard r of a batch goes to device r
    Processes    one replica in each process of torch.distributed: all make the same batches, each takes its own shard

    engine "replicas"     Devices; gradients summed by `collectives`         Trainer(…, devices=["cuda:0", "cuda:1"])
           "allreduce"    Processes; gradients summed by messages            torchrun --nproc-per-node=2 …
           "ddp"          Processes; torch's DistributedDataParallel         torchrun --nproc-per-node=2 …

The processes must have joined `torch.distributed` before: `distributed.run` and `distributed.join` see to it.
Both have `world_size`, the number of replicas; `here`, the ranks of those in this process; `devices`, on which these
are; `places`, the names of all replicas' devices. Every method of `Processes` is a collective call.
"""

import os
from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.data_parallel import gradients
from d2lmini.data_parallel.by_hand import split_batch
from d2lmini.devices import try_gpu
from d2lmini.trainer import facts, rng


class Devices:
    """The replicas of one process, rank r's on devices[r]."""

    def __init__(self, devices, allreduce, bucket_bytes):
        """Sum gradients with ``allreduce(tensors)``, which replaces each tensor by the sum of all."""
        self.devices, self.allreduce, self.bucket_bytes = devices, allreduce, bucket_bytes
        self.world_size, self.here, self.places = len(devices), range(len(devices)), list(map(str, devices))

    def shard(self, X, y):
        """Return the sizes of all ranks' shards of a batch, and a list of (X, y) of those here, on their devices."""
        devices = self.devices[: len(X)]
        if len(devices) == 1:  # takes the batch as it is
            return [len(X)], [(X.to(devices[0]), y.to(devices[0]))]
        parts = list(zip(*split_batch(X, y, devices), strict=True))
        return [len(part) for part, _ in parts], parts

    def sum_gradients(self, parameters):
        """Give every replica the sum of all replicas' gradients; parameters: a list for each replica here."""
        gradients.reduce(parameters, self.allreduce, self.bucket_bytes)

    def add(self, number):
        """Return the sum over all processes of a number or tensor."""
        return number

    def gather(self, rows):
        """Return a list of values for each rank, given those of the replicas here."""
        return rows

    def agree(self, facts):
        """Raise ValueError unless all processes have the same facts."""

    def on_rank_0(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        return function()

    @torch.no_grad()
    def broadcast(self, rows):
        """Make the tensors of all replicas those of rank 0; rows: a list of tensors for each replica here."""
        for row in rows[1:]:
            for mine, first in zip(row, rows[0], strict=True):
                mine.copy_(first)

    def drawing(self):
        """Return a context in which a replica may draw random numbers, as for dropout: all draw from the same."""
        return nullcontext()

    def state(self):
        """Return what decides the replicas' random numbers beside the generators of the process."""
        return {}

    def load_state(self, state):
        """Take over what `state` returned; states: that of each rank."""


class Processes:
    """The replica of this process, one of torch.distributed's; random numbers are those of rank 0."""

    def __init__(self, device, allreduce, bucket_bytes):
        """Sum gradients with ``allreduce(tensor)``, which replaces it by the sum over the ranks."""
        self.devices, self.allreduce, self.bucket_bytes = [device], allreduce, bucket_bytes
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        self.here = range(self.rank, self.rank + 1)
        self.places = self.gather([str(device)])
        rng.set_state(self.on_rank_0(rng.get_state))
        self._numbers = rng.OwnNumbers(device, self.rank)

    def shard(self, X, y):
        """Return all shards' sizes, and a list with this rank's (X, y), or none where there are fewer examples."""
        ranks = min(len(X), self.world_size)
        mine = [part.tensor_split(ranks)[self.rank].to(self.devices[0]) for part in (X, y) if self.rank < ranks]
        return [len(part) for part in X.tensor_split(ranks)], [tuple(mine)] if mine else []

    def sum_gradients(self, parameters):
        """Give every replica the sum of all replicas' gradients."""
        gradients.reduce(parameters, lambda flats: self.allreduce(flats[0]), self.bucket_bytes, self._anywhere)

    def add(self, number):
        """Return the sum over all ranks of a number or tensor, as a float64 on this rank's device."""
        total = torch.zeros((), dtype=torch.float64, device=self.devices[0]) + number
        dist.all_reduce(total)
        return total

    def gather(self, rows):
        """Return a list of values for each rank, given a list with this rank's."""
        return gather_objects(*rows)

    def agree(self, facts):
        """Raise ValueError unless all processes have the same facts."""
        agree(facts)

    def on_rank_0(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        box = [None, None]
        if self.rank == 0:
            try:
                box[0] = function()
            except Exception as error:
                box[1] = error
        dist.broadcast_object_list(box, 0)
        if box[1] is not None:
            raise box[1]
        return box[0]

    @torch.no_grad()
    def broadcast(self, rows):
        """Make the tensors of all replicas those of rank 0; rows: a list with this rank's tensors."""
        for tensor in rows[0]:
            whole = tensor.contiguous()  # itself, or a copy
            dist.broadcast(whole, 0)
            tensor.copy_(whole)

    def drawing(self):
        """Return a context in which this replica draws random numbers of its own."""
        return self._numbers.drawn()

    def state(self):
        """Return the state of this replica's own random numbers."""
        return {"random": self._numbers.state}

    def load_state(self, states):
        """Take over the random numbers, given what `state` returned on each rank of as many."""
        if len(states) == self.world_size and "random" in states[self.rank]:
            self._numbers.state = states[self.rank]["random"]

    def _anywhere(self, used):
        used = torch.tensor(used, dtype=torch.uint8)
        dist.all_reduce(used, dist.ReduceOp.MAX)
        return used.tolist()


def agree(mine):
    """Raise ValueError unless all ranks of torch.distributed have the same facts, in the form of `facts`."""
    first, *others = gather_objects(mine)
    for rank, theirs in enumerate(others, start=1):
        found = facts.different(theirs, first)
        if found:
            kind, name, value, expected = found
            raise ValueError(f"rank {rank} has other {kind} than rank 0: {name} is {value}, not {expected}: start "
                             "all ranks with the same options and data")  # fmt: skip


def gather_objects(value):
    """Return what the ranks of torch.distributed have given, in order of rank: anything that can be pickled."""
    found = [None] * dist.get_world_size()
    dist.all_gather_object(found, value)
    return found


def choose_devices(devices, engine):
    """Return the devices of this process: by default the first accelerator, or else the CPU.

    In a process of several it is the accelerator with its local rank's number. Raises ValueError for no device, and in
    a process of several for more than one; RuntimeError outside of a group.
    """
    local = 0 if engine == "replicas" else int(os.environ.get("LOCAL_RANK", 0))
    devices = [torch.device(d) for d in ([try_gpu(local)] if devices is None else devices)]
    if not devices:
        raise ValueError("expected at least one device, got none")
    if engine != "replicas" and not dist.is_initialized():
        raise RuntimeError("this process has joined no others: start it with torchrun, or with distributed.run")
    if engine != "replicas" and len(devices) != 1:
        raise ValueError(f"a process has one device when each has a replica, got {', '.join(map(str, devices))}")
    return devices


def make_comm(settings, devices):
    """Return the `Devices` or the `Processes` that the settings ask for."""
    if settings.engine == "replicas":
        return Devices(devices, gradients.summing(settings.allreduce), settings.buckets)
    return Processes(devices[0], None if settings.engine == "ddp" else _allreduce(settings.allreduce), settings.buckets)


def _allreduce(algorithm):
    """Return the function that replaces a tensor by the sum over the ranks."""
    from d2lmini.distributed import Messages  # only who asks for processes needs what a system has for them

    if callable(algorithm):
        return algorithm
    if "simccl" in dist.get_backend_config():
        raise ValueError('allreduce sends messages between processes: on simulated ranks choose the engine "ddp", and '
                         "sim.spawn(…, allreduce=…) for its schedule")  # fmt: skip
    return partial(Messages().allreduce, algorithm=algorithm or "ring")
