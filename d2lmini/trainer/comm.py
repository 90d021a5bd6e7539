"""Where the replicas of a trainer are, and what they tell one another. Its step is written once, over this.

    engine "replicas"    all in one process: shard r of a batch goes to device r    Trainer(…, devices=["cuda:0", …])
           "allreduce"   one in each process of torch.distributed: all make the     torchrun --nproc-per-node=2 …
           "ddp"         same batches, each takes its own shard

The processes must have joined `torch.distributed` before: `distributed.run` and `distributed.join` see to it.
"""

from contextlib import nullcontext
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.collectives.executor import sum_tensors
from d2lmini.distributed import Messages
from d2lmini.distributed.join import backend
from d2lmini.trainer import facts, rng


class Comm:
    """The ranks of a trainer; of several processes, all must call the same methods.

    world_size: the number of replicas; here: the ranks of those in this process; devices: on which these are; places:
    the names of all replicas' devices; numbers: the random numbers that a process among others has for itself, or None.
    """

    def __init__(self, devices, alone):
        """Begin with the devices of this process; alone: whether it has all replicas, or else one among others."""
        self.devices, self.alone, self.numbers = devices, alone, None
        first, self.world_size = (0, len(devices)) if alone else (dist.get_rank(), dist.get_world_size())
        self.here = range(first, first + len(devices))
        self.places = self.gather(list(map(str, devices)))
        if not alone:
            rng.set_state(self.on_rank_0(rng.get_state))
            self.numbers = rng.OwnNumbers(devices[0], first)

    def text(self):
        """Return how many processes there are, or simulated ranks, in words."""
        one, more = ("rank", "ranks") if backend() == "simccl" else ("process", "processes")
        return f"{self.world_size} {one if self.world_size == 1 else more}"

    def shard(self, X, y):
        """Return the sizes of all ranks' shards of a batch, and a list of (X, y) of those here, on their devices.

        Where there are fewer examples than ranks, the last ranks have none.
        """
        ranks, here = min(len(X), self.world_size), slice(self.here.start, self.here.stop)
        cut = [T.tensor_split(ranks) if ranks > 1 else [T] for T in (X, y)]
        mine = [[part.to(device) for part, device in zip(parts[here], self.devices)] for parts in cut]
        return [len(part) for part in cut[0]], list(zip(*mine, strict=True))

    def add(self, number):
        """Return the sum over all processes of a number or tensor; of several, as a float64 on this one's device."""
        if self.alone:
            return number
        total = torch.zeros((), dtype=torch.float64, device=self.devices[0]) + number
        dist.all_reduce(total)
        return total

    def gather(self, rows):
        """Return a list of values for each rank, given those of the replicas here: anything that can be pickled."""
        if self.alone:
            return rows
        found = [None] * self.world_size
        dist.all_gather_object(found, *rows)
        return found

    def anywhere(self, here):
        """Return which of many things are true in any process, a list of bools, given which are true in this one."""
        if self.alone:
            return here
        found = torch.tensor(here, dtype=torch.uint8)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.tolist()

    def agree(self, mine):
        """Raise ValueError unless all processes have the same facts, in the form of `facts`."""
        first, *others = [mine] if self.alone else self.gather([mine])
        for rank, theirs in enumerate(others, start=1):
            found = facts.different(theirs, first)
            if found:
                kind, name, value, expected = found
                raise ValueError(
                    f"rank {rank} has other {kind} than rank 0: {name} is {value}, not {expected}: start "
                    "all ranks with the same options and data"
                )

    def on_rank_0(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        if self.alone:
            return function()
        box = [None, None]
        if 0 in self.here:
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
        """Make the tensors of all replicas those of rank 0; rows: a list of tensors for each replica here."""
        for tensor in () if self.alone else rows[0]:
            whole = tensor.contiguous()  # itself, or a copy
            dist.broadcast(whole, 0)
            tensor.copy_(whole)
        for row in rows[1:]:
            for mine, first in zip(row, rows[0], strict=True):
                mine.copy_(first)

    def summing(self, algorithm):
        """Return what replaces each tensor of a list, one for each replica here, by the sum over all ranks.

        algorithm: a function that does so, or its name; None: a ring.
        """
        if callable(algorithm):
            return algorithm
        if self.alone:
            return partial(sum_tensors, algorithm=algorithm or "ring")
        messages = Messages()
        return lambda tensors: messages.allreduce(tensors[0], algorithm or "ring")

    def drawing(self):
        """Return a context in which a replica may draw random numbers, as for dropout."""
        return self.numbers.drawn() if self.numbers else nullcontext()
