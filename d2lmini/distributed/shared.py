"""An all-reduce through memory that the ranks of one machine share: no message, no kernel, each byte touched seldom.

Rank r adds up slice r for all, in rank order, and the others copy it: every rank gets the same bits. A tensor in a
rank's own memory goes through the shared memory in blocks that stay in the cache. Two ranks, one block:

    rank 0's tensor │ A0 │ B0 │              input 0 │ –  │ B0 │                    output │ A0+A1 │ B0+B1 │
    rank 1's tensor │ A1 │ B1 │              input 1 │ A1 │ –  │                               ▲       ▲
                      1. copy in what another rank will add        2. add: rank 0 the slice A, rank 1 the slice B
                      3. copy out what another rank has added      (its own slice a rank reads and writes in place)

The three run shifted, so that no rank waits for what has only just begun:

    block      0      1      2      3          three slots of each kind are in use at a time
    copy in    ▐0▌    ▐1▌    ▐2▌    ▐3▌
    add               ▐0▌    ▐1▌    ▐2▌
    copy out                 ▐0▌    ▐1▌

A tensor that fits into one block is copied in whole, and every rank adds up all of it, for one wait less.

Bytes read and written by a rank for n bytes, P ranks, counting what need not be in its cache: copy in 2n(P − 1)/P, add
n + n/P, its own slice back n/P, copy out 2n(P − 1)/P: 4n for P = 2, 4.5n for P = 4. A tensor that lives in the shared
memory (`SharedAllreduce.buffer`) is not copied: rank r reads slice r of all buffers and writes the sum into all, 2n.
"""

import torch

from d2lmini.collectives.schedules import offsets
from d2lmini.distributed.agreement import Call, group_timeout, must_agree, must_not_differ
from d2lmini.distributed.messages import COMBINE, must_be_possible
from d2lmini.distributed.segment import ENTERED, KEY, WRITTEN, Segment

BLOCK = 1024 * 1024  # bytes of a rank's tensor that pass at a time
SLOTS = 3
AT_ONCE = 4 * 1024 * 1024  # bytes of all ranks up to which each adds up everything itself: one wait in place of two


class SharedAllreduce:
    """All-reduce between the ranks of one machine; making it is a collective call, as every call of `allreduce` is.

    elements, dtype: of `buffer`, this rank's tensor in the shared memory, all zero at first; none by default.
    timeout: seconds that a rank waits for another, by default the group's own. block: bytes, a multiple of 64, that
    are copied in at a time.
    """

    def __init__(self, elements=0, dtype=torch.float32, timeout=None, block=BLOCK):
        timeout = timeout or group_timeout()
        self.timeout, self.block, self._rounds, self._key, self._views = timeout, block, 0, KEY, {}
        call = Call.next("shared memory", torch.empty(elements, dtype=dtype, device="meta"), "buffer")
        must_agree(call, timeout, check=True)
        self.rank, self.world_size = call.rank, call.world_size
        staging = (self.world_size + 1) * SLOTS * block
        each = -(-elements * dtype.itemsize // 4096) * 4096
        self.segment = Segment(staging + self.world_size * each, timeout)
        memory = torch.frombuffer(self.segment.data, dtype=torch.uint8)
        self._staging = memory[:staging].view(self.world_size + 1, SLOTS, block)
        buffers = memory[staging:].view(dtype).view(self.world_size, each // dtype.itemsize)[:, :elements]
        self._buffers, self.buffer = list(buffers), buffers[self.rank]

    @torch.no_grad()
    def allreduce(self, tensor, op="sum"):
        """Replace `tensor` on every rank by the sum (product, min, max, mean) over all ranks; return it.

        The tensor `buffer` is reduced where it lies; any other CPU tensor is copied in and out, block by block.
        Raises ValueError for a tensor or op that cannot be reduced and where the ranks disagree, TimeoutError naming a
        rank that does not come, ConnectionError naming one that has ended.
        """
        call = Call.next("shared memory", tensor, op)
        must_be_possible(call, tensor)
        self._key = KEY + (self._key == KEY)  # a rank may be one call ahead, never two: two places are enough
        self.segment.signal(self._key, call.key)
        flat = tensor.contiguous().view(-1)  # a copy if the tensor is not contiguous
        if tensor is self.buffer:
            self._in_place(call)
        elif flat.nbytes <= min(self.block, AT_ONCE // self.world_size):
            self._at_once(flat, call)
        else:
            self._in_blocks(flat, call)
        if flat.data_ptr() != tensor.data_ptr():
            tensor.copy_(flat.view_as(tensor))
        return tensor

    def _enter(self, round):
        self.segment.signal(ENTERED, round + 1)

    def _others(self, call, round):
        """Wait until all have entered the round, and see that they are in the same call."""
        try:
            self.segment.wait(ENTERED, round + 1)
        except TimeoutError:
            must_not_differ(call, self.timeout)
            raise
        for rank in range(self.world_size):
            if self.segment.read(rank, self._key) != call.key:
                must_not_differ(call, self.timeout)
                raise ValueError(f"in call {call.number} ({call.description}), rank {rank} is in another call")

    def _slots(self, dtype):
        """Return the blocks of the staging memory as tensors of a type: [slot][rank], the last being the output."""
        if dtype not in self._views:
            blocks = self._staging.view(dtype)
            self._views[dtype] = [list(blocks[:, slot]) for slot in range(SLOTS)]
        return self._views[dtype]

    def _at_once(self, flat, call):
        """Copy in; add up everything, as every rank does."""
        round, n = self._rounds, len(flat)
        *inputs, _ = self._slots(flat.dtype)[round % SLOTS]
        inputs[self.rank][:n].copy_(flat)
        self._enter(round)
        self._others(call, round)
        self._add([block[:n] for block in inputs], flat, call)
        self.segment.signal(WRITTEN, round + 1)
        self._rounds += 1

    def _in_place(self, call):
        """Add up this rank's slice of all buffers, and write it into all."""
        round, cuts = self._rounds, offsets(len(self.buffer), self.world_size)
        self._enter(round)
        self._others(call, round)
        size = self.block // self.buffer.element_size()
        scratch = self._slots(self.buffer.dtype)[0][self.rank]
        for first in range(cuts[self.rank], cuts[self.rank + 1], size):
            last = min(first + size, cuts[self.rank + 1])
            parts, total = [buffer[first:last] for buffer in self._buffers], scratch[: last - first]
            self._add(parts, total, call)
            for part in parts:
                part.copy_(total)
        self.segment.signal(WRITTEN, round + 1)
        self.segment.wait(WRITTEN, round + 1)
        self._rounds += 1

    def _in_blocks(self, flat, call):
        """Pass the tensor through the staging memory; copying in, adding and copying out run shifted."""
        start, blocks = self._rounds, flat.split(self.block // flat.element_size())
        slots = self._slots(flat.dtype)
        for i in range(len(blocks) + 2):
            if i < len(blocks):
                self._copy_in(blocks[i], slots[(start + i) % SLOTS])
                self._enter(start + i)
            if 1 <= i <= len(blocks):
                self._others(call, start + i - 1)
                self._add_slice(blocks[i - 1], slots[(start + i - 1) % SLOTS], call)
                self.segment.signal(WRITTEN, start + i)
            if i >= 2:
                self.segment.wait(WRITTEN, start + i - 1)
                self._copy_out(blocks[i - 2], slots[(start + i - 2) % SLOTS])
        self._rounds += len(blocks)

    def _slice(self, block):
        """Return where the slice of a block that this rank adds begins and ends."""
        cuts = offsets(len(block), self.world_size)
        return cuts[self.rank], cuts[self.rank + 1]

    def _copy_in(self, block, slot):
        first, last = self._slice(block)
        slot[self.rank][:first].copy_(block[:first])
        slot[self.rank][last : len(block)].copy_(block[last:])

    def _add_slice(self, block, slot, call):
        first, last = self._slice(block)
        parts = [part[first:last] for part in slot[:-1]]
        parts[self.rank] = block[first:last]
        total = slot[-1][first:last]
        self._add(parts, total, call)
        block[first:last].copy_(total)

    def _copy_out(self, block, slot):
        first, last = self._slice(block)
        block[:first].copy_(slot[-1][:first])
        block[last:].copy_(slot[-1][last : len(block)])

    def _add(self, parts, total, call):
        """Combine the ranks' parts in rank order."""
        combine, here = COMBINE[call.combine], parts[0]
        for part in parts[1:]:
            here = combine(here, part, out=total)
        if len(parts) == 1:
            total.copy_(here)
        if call.op == "mean":
            total.div_(self.world_size)
