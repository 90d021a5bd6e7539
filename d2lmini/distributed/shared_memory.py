"""An all-reduce through memory that the ranks of one machine share: no message, each byte touched seldom.

Rank r adds up slice r for all, in rank order, and the others copy it: every rank gets the same bits. A tensor passes
through the memory in blocks that stay in the cache. Two ranks, one block:

    rank 0's tensor │ A0 │ B0 │              input 0 │ –  │ B0 │                    output │ A0+A1 │ B0+B1 │
    rank 1's tensor │ A1 │ B1 │              input 1 │ A1 │ –  │                               ▲       ▲
                      1. copy in what another rank will add        2. add: rank 0 the slice A, rank 1 the slice B
                      3. copy out what another rank has added      (its own slice a rank reads and writes in place)

    block      0      1      2      3          the three run shifted, with one barrier after each column; so two places
    copy in    ▐0▌    ▐1▌    ▐2▌    ▐3▌        for blocks are enough
    add               ▐0▌    ▐1▌    ▐2▌
    copy out                 ▐0▌    ▐1▌

In the barrier every rank writes the call's key into a pipe to each other rank and reads theirs. The system's pipes also
order memory, which plain counters in it would not do on Arm.
"""

import os
import select
import shutil
import tempfile
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import torch

from d2lmini.collectives.schedules import offsets
from d2lmini.distributed.failures import absent
from d2lmini.distributed.handshake import Handshake
from d2lmini.distributed.messages import COMBINE, must_be_possible

LOOKS = 50  # that a waiting rank takes before it sleeps
BLOCK = 1024 * 1024  # bytes of a rank's tensor that pass at a time


class SharedAllreduce:
    """All-reduce between the ranks of one machine. Made after joining, in the same order by all.

    timeout: seconds that a rank waits for another, by default as long as in the group's own calls. block: bytes, a
    multiple of 8, that pass at a time. Raises TimeoutError naming the ranks that do not come.
    """

    def __init__(self, timeout=None, block=BLOCK):
        self.handshake, self.block, self.turn = Handshake(timeout), block, 0
        self.rank, self.world_size = self.handshake.rank, self.handshake.world_size
        self.others = [rank for rank in range(self.world_size) if rank != self.rank]
        folder = self._folder()
        nbytes = 2 * (self.world_size + 1) * block
        memory = torch.from_file(str(folder / "memory"), shared=True, size=nbytes, dtype=torch.uint8)
        self.memory = memory.view(2, self.world_size + 1, block)  # [place][rank], the last being the output
        self.readers = {r: os.open(folder / f"{r}-{self.rank}", os.O_RDONLY | os.O_NONBLOCK) for r in self.others}
        self._meet("readers")
        self.writers = {r: os.open(folder / f"{self.rank}-{r}", os.O_WRONLY) for r in self.others}
        self._meet("writers")
        if self.rank == 0:
            shutil.rmtree(folder)  # what is open stays, until its last rank has ended

    def _folder(self):
        """Return the folder with the memory and the pipes, which rank 0 makes."""
        store = self.handshake.store
        if self.rank == 0:
            folder = Path(tempfile.mkdtemp(prefix="d2lmini-", dir="/dev/shm" if os.path.isdir("/dev/shm") else None))
            for a in range(self.world_size):
                for b in (b for b in range(self.world_size) if b != a):
                    os.mkfifo(folder / f"{a}-{b}")
            store.set("folder", str(folder))
        self._meet("folder is there")
        return Path(store.get("folder").decode())

    def _meet(self, place):
        missing = absent(self.handshake.store, place, self.rank, self.world_size, self.handshake.timeout)
        if missing:
            raise TimeoutError(f"rank {self.rank} waited {self.handshake.timeout:g} s for rank {missing[0]}, to share "
                               "memory with it")  # fmt: skip

    @torch.no_grad()
    def allreduce(self, tensor, op="sum"):
        """Replace `tensor`, on the CPU, on every rank by the sum (product, min, max, mean) over all ranks; return it.

        Raises ValueError for a tensor or op that cannot be reduced and where the ranks disagree, LostRankError naming a
        rank that does not come or has ended.
        """
        must_be_possible(tensor, op)
        key = self.handshake.begin("shared memory", tensor, op).to_bytes(4, "little")
        flat = tensor.contiguous().view(-1)  # a copy if the tensor is not contiguous
        blocks, memory = flat.split(self.block // flat.element_size()), self.memory.view(flat.dtype)
        blocks = [self._slices(block) for block in blocks if len(block)]
        for i in range(len(blocks) + 2):
            if i:
                self._barrier(key)
            if i < len(blocks):
                self._copy(blocks[i], memory[(self.turn + i) % 2, self.rank], inward=True)
            if 1 <= i <= len(blocks):
                self._add(*blocks[i - 1][self.rank], memory[(self.turn + i - 1) % 2], op)
            if i >= 2:
                self._copy(blocks[i - 2], memory[(self.turn + i) % 2, -1], inward=False)
        self.turn += len(blocks)
        return tensor if flat.data_ptr() == tensor.data_ptr() else tensor.copy_(flat.view_as(tensor))

    def _slices(self, block):
        """Return, for each rank, the slice of a block that it adds, and where that begins and ends."""
        cuts = offsets(len(block), self.world_size)
        return [(block[first:last], first, last) for first, last in pairwise(cuts)]

    def _copy(self, slices, place, inward):
        """Copy the other ranks' slices of a block in or out."""
        for here, first, last in (slices[rank] for rank in self.others):
            place[first:last].copy_(here) if inward else here.copy_(place[first:last])

    def _add(self, here, first, last, places, op):
        """Combine this rank's slice of all ranks' blocks, in rank order."""
        total = places[-1, first:last]
        parts = [here if rank == self.rank else places[rank, first:last] for rank in range(self.world_size)]
        so_far = parts[0]
        for part in parts[1:]:
            so_far = COMBINE.get(op, torch.add)(so_far, part, out=total)
        if op == "mean":
            so_far = torch.div(so_far, self.world_size, out=total)
        here.copy_(so_far)

    def _barrier(self, key):
        """Wait for all ranks; what each has written before is then there."""
        for rank in self.others:
            with suppress(BrokenPipeError):  # it is noticed below
                os.write(self.writers[rank], key)
        for rank in self.others:
            theirs = self._read(rank, len(key))
            if theirs != key:
                raise self.handshake.lost(rank, late=theirs is None)

    def _read(self, rank, count):
        """Return the next bytes that a rank has written: none where it has ended; or None where time is up."""
        for look in range(LOOKS + 1):  # to sleep takes longer than what another rank usually has left to do
            with suppress(BlockingIOError):
                return os.read(self.readers[rank], count)
            if look < LOOKS:
                os.sched_yield()
            elif not select.select([self.readers[rank]], [], [], self.handshake.timeout)[0]:
                return None
        return os.read(self.readers[rank], count)
