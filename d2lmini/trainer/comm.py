"""Where the replicas of a trainer are, and what they tell one another. Its step is written once, over this.

    engine "replicas"    all in one process: shard r of a batch goes to device r    Trainer(…, devices=["cuda:0", …])
           "allreduce"   one in each process of torch.distributed: all make the     torchrun --nproc-per-node=2 …
           "ddp"         same batches, each takes its own shard

The processes must have joined `torch.distributed` before: `distributed.run` and `distributed.join` see to it.
"""

from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from functools import partial
from itertools import count

import torch
import torch.distributed as dist

from d2lmini.collectives.executor import sum_tensors
from d2lmini.distributed import Messages
from d2lmini.distributed.errors import UnlikeError
from d2lmini.distributed.join import backend
from d2lmini.trainer import fingerprint, rng

ENDED = -1  # in place of the size of a batch that an iterator has not


class Comm:
    """The ranks of a trainer; of several processes, all must call the same methods.

    Attributes:
        world_size: The number of replicas.
        here: The ranks of the replicas in this process.
        devices: The devices of these.
        places: The names of all replicas' devices.
        numbers: The random numbers that a process among others has for itself, or None.
    """

    def __init__(self, devices, alone):
        """Begin with the devices of this process; alone: whether it has all replicas, or else one among others."""
        self.devices, self.alone, self.numbers, self._told = devices, alone, None, 0
        first, self.world_size = (0, len(devices)) if alone else (dist.get_rank(), dist.get_world_size())
        self.here = range(first, first + len(devices))
        self.places = self.gather(list(map(str, devices)))
        if not alone:
            rng.set_state(self.on_rank_0(rng.get_state))
            self.numbers = rng.OwnNumbers(devices[0], first)
            store = dist.distributed_c10d._get_default_store()  # torch has no public name for it
            self._name = f"trainer {store.add(f'trainers/{first}', 1)}"  # the same on all ranks

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

    def any_rank(self, here: list[bool]) -> list[bool]:
        """Return the logical OR over all processes of each of this process's flags."""
        if self.alone:
            return here
        found = torch.tensor(here, dtype=torch.uint8)
        dist.all_reduce(found, dist.ReduceOp.MAX)
        return found.tolist()

    def agree(self, mine):
        """Raise UnlikeError unless all processes have the same fingerprint."""
        first, *others = [mine] if self.alone else self.gather([mine])
        for rank, theirs in enumerate(others, start=1):
            found = fingerprint.different(theirs, first)
            if found:
                kind, name, value, expected = found
                raise UnlikeError(
                    f"rank {rank} has other {kind} than rank 0: {name} is {value}, not {expected}: start "
                    "all ranks with the same options and data"
                )

    def alike(self, batches: Iterable, epoch: int) -> Iterator:
        """Yield the batches (X, y) of an iterator, each once all processes are known to have it.

        Raises:
            UnlikeError: naming the rank whose iterator ends before the others', or gives another batch.
        """
        if self.alone:
            yield from batches
            return
        iterator = iter(batches)
        for number in count(1):
            batch = next(iterator, None)
            found = self.tell([ENDED, 0] if batch is None else [len(batch[0]), _checksum(batch)])
            usual = max(found, key=lambda each: (found.count(each), each[0] != ENDED))
            for rank, other in enumerate(found):
                if other != usual:
                    raise UnlikeError(
                        f"rank {rank} has {_in_words(other, usual)} in epoch {epoch}, batch {number}, where rank "
                        f"{found.index(usual)} has {_in_words(usual, other)}: give all ranks the same batches"
                    )
            if batch is None:
                return
            yield batch

    def tell(self, numbers: list[int]) -> list[list[int]]:
        """Return every process's whole numbers, given this one's; it costs simulated ranks no time."""
        if backend() != "simccl":
            device = "cpu" if "cpu:" in dist.get_backend_config() else self.devices[0]
            found = [torch.zeros(len(numbers), dtype=torch.int64, device=device) for _ in range(self.world_size)]
            dist.all_gather(found, torch.tensor(numbers, device=device))
            return [each.tolist() for each in found]
        store, self._told = dist.distributed_c10d._get_default_store(), self._told + 1
        mine = f"{self._name}/{self._told}/{dist.get_rank()}"
        store.set(mine, " ".join(map(str, numbers)))
        keys = [f"{self._name}/{self._told}/{rank}" for rank in range(self.world_size)]
        return [list(map(int, store.get(key).split())) for key in keys]

    def on_rank_0(self, function):
        """Return what `function` returns in the process of rank 0, or raise what it raises there, in all processes."""
        if self.alone:
            return function()
        box = [None, None]
        if 0 in self.here:
            try:
                box[0] = function()
            except Exception as error:
                error.rank = getattr(error, "rank", 0)
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

        Args:
            algorithm: A function that does so, or its name; None: a ring.
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


def _checksum(batch):
    """Return a checksum of the examples and labels that are on the CPU: those elsewhere would have to be waited for."""
    on_cpu = [part for part in batch if isinstance(part, torch.Tensor) and part.device.type == "cpu"]
    return sum(fingerprint.checksum(part) for part in on_cpu)


def _in_words(numbers, others):
    """Return what a rank told of its batch, so that it differs from what another did."""
    size = "no batch left" if numbers[0] == ENDED else f"{numbers[0]} examples"
    return size if numbers[0] != others[0] else f"the examples of checksum {numbers[1]:x}"
