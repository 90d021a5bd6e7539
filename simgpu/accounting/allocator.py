"""The memory of a simulated GPU: what is in use, the peak, and the error when it does not suffice.

Memory is counted by the storage, the block of bytes that tensors are views of: a storage is added when a device first
sees it and subtracted when the last tensor that uses it is gone, at once, through a weak reference. Views are therefore
not counted twice. As in CUDA's allocator a block takes a multiple of 512 bytes; unlike there nothing is kept for
later, so what is reserved is what is allocated, and fragmentation does not exist. Each block remembers the stream that
was current when it was allocated, and those that ``Tensor.record_stream`` named: CUDA's allocator hands a freed block
to its own stream at once, and waits for the recorded ones.

The bytes themselves lie in the host's memory, which is taken only after the capacity was checked: in factories, copies
and ``resize_``, and by `result_sizes` in every operation whose results' shapes torch can tell from its operands'
shapes. All others are checked when their results exist, the host's memory already taken: ``bincount``, ``nonzero``,
``unique`` and what else depends on the numbers in a tensor. Memory that an operation uses only while it runs is not
counted at all.
"""

import threading
import weakref
from collections import defaultdict

import torch

from simgpu.accounting.queues import Queue

BLOCK = 512  # bytes; kMinBlockSize of CUDA's caching allocator


class Block(weakref.ref):
    """A weak reference to a storage, with what is counted of it.

    Attributes:
        key: The storage's address.
        size: The bytes that it is counted with.
        use: The `Use` of the process that has it.
        stream: The `queues.Queue` that was current on the device when it was allocated; None without a clock.
        recorded: The other `Queue`s that were named to `record_stream`, in order.
        line: Of the program that allocated it, where `Running.line` says.
    """

    __slots__ = ("key", "line", "recorded", "size", "stream", "use")
    recorded: list[Queue]
    stream: Queue | None


class Use:
    """What one process uses of a device: bytes now, the most at one time, and how many storages there have been."""

    def __init__(self):
        self.allocated = self.peak = self.count = 0
        self._lines, self._at_peak, self._rises = defaultdict(int), {}, False

    def note(self, block, size):
        """Note that a block is to have another size, by the line that took it."""
        if size < block.size and self._rises:
            self._at_peak, self._rises = dict(self._lines), False
        self._lines[block.line] += size - block.size
        self._rises = self._rises or self.allocated + size - block.size > self.peak

    def at_peak(self):
        """Return the bytes by line of the program when the most were in use; empty unless lines were noted."""
        lines = self._lines if self._rises else self._at_peak
        return {line: nbytes for line, nbytes in lines.items() if nbytes}


class Process:
    """What tells one simulated process from another. rank: its number, None where it has none."""

    rank = None


class Running:
    """Which simulated `Process` runs, None for the program itself. Whoever lets processes take turns sets it."""

    process = None
    line = None  # returns the line of the program that takes memory, as text, where that is noted


class Allocator:
    """The bytes of the device `index`, of which there are `capacity`. Safe to use from many threads.

    Python tells of a storage's end inside any statement of any thread, where an interrupt would be lost with half the
    work done. So the news only go to a list, by a function of C, and `_settle` subtracts before anything is read or
    added.

    Args:
        current_stream: A function of `index` that returns the `Queue` on which the calling thread queues work, or None.
    """

    platform = "sim"  # whose memory runs out, in the error

    def __init__(self, index, capacity, current_stream=lambda index: None):
        self.index, self.capacity, self._current_stream = index, capacity, current_stream
        self.peak = self.count = self.failures = 0
        self._allocated = 0  # with what is in `_gone`
        self.uses = defaultdict(Use)  # by process
        self._blocks = {}  # by the storage's id
        self._gone = []  # blocks whose storage is no more
        self._note = self._gone.append
        self._lock = threading.RLock()

    @property
    def allocated(self):
        """The bytes that are in use."""
        if self._gone:
            self._settle()
        return self._allocated

    def check(self, nbytes):
        """Raise torch.OutOfMemoryError if `nbytes` more would not fit. Nothing is taken."""
        size = -(-nbytes // BLOCK) * BLOCK
        # What is gone is subtracted only where that decides: this is asked before every operation.
        if self._allocated + size > self.capacity and self.allocated + size > self.capacity:
            self._refuse(nbytes)

    def add(self, storage):
        """Count a storage; one that is counted already is counted again only by what it grew or shrank.

        Raises:
            torch.OutOfMemoryError: It does not fit; nothing is counted then.
        """
        nbytes, key = storage.nbytes(), id(storage)  # one object for as long as there is the storage
        size = -(-nbytes // BLOCK) * BLOCK
        with self._lock:
            if self._gone:
                self._subtract()
            blocks = self._blocks
            block = blocks.get(key)
            used = self._allocated + size - (0 if block is None else block.size)
            if used > self.capacity and used > self._allocated:
                self._refuse(nbytes)
            if block is None:
                block, use = Block(storage, self._note), self.uses[Running.process]
                block.key, block.size, block.use = key, 0, use
                block.stream, block.recorded = self._current_stream(self.index), []
                block.line = Running.line and Running.line()
                blocks[key] = block
                self.count += 1
                use.count += 1
            elif not block.size:
                block.use = self.uses[Running.process]
            use = block.use
            if Running.line and size != block.size:
                use.note(block, size)
            use.allocated += size - block.size  # from here on nothing is called, so no interrupt strikes half-way
            block.size = size
            self._allocated = used
            if used > self.peak:
                self.peak = used
            if use.allocated > use.peak:
                use.peak = use.allocated

    def block(self, storage):
        """Return the `Block` of a storage, None if it is not counted."""
        self._settle()
        return self._blocks.get(id(storage))

    def _settle(self):
        """Subtract what is gone."""
        with self._lock:
            self._subtract()

    def _subtract(self):
        blocks, gone = self._blocks, self._gone
        while gone:
            block = gone[-1]  # not pop: from here on too nothing is called
            if Running.line:
                block.use.note(block, 0)
            self._allocated -= block.size
            block.use.allocated -= block.size
            del blocks[block.key], gone[-1]

    def use(self):
        """Return the `Use` of the process that runs, which outside of one is the device itself."""
        self._settle()
        return self if Running.process is None else self.uses[Running.process]

    def end(self, process):
        """Count nothing more of a process that has ended, also where Python still keeps one of its tensors.

        A tensor that is used again counts again, for the process that uses it.
        """
        with self._lock:
            self._subtract()
            use = self.uses.pop(process, None)
            for block in self._blocks.values():
                if block.use is use:
                    self._allocated -= block.size
                    block.size, block.use = 0, self.uses[None]

    def reset_peak(self):
        """Start looking for the largest use anew, from what is in use now."""
        with self._lock:
            use = self.use()
            use.peak = use.allocated

    def restart(self, capacity):
        """Set the capacity, and every count to what is in use now; raises nothing if that is more than there is."""
        with self._lock:
            self.capacity, self.peak = capacity, self.allocated
            self.count, self.failures = len(self._blocks), 0

    def free(self):
        """Return the bytes that are not in use."""
        return self.capacity - self.allocated

    def blocks(self):
        """Return how many storages are counted."""
        self._settle()
        return len(self._blocks)

    def _refuse(self, nbytes):
        self.failures += 1
        raise torch.OutOfMemoryError(
            f"{self.platform} out of memory. Tried to allocate {human(nbytes)}. GPU {self.index} has a total capacity "
            f"of {human(self.capacity)} of which {human(self.free())} is free. Of the allocated memory "
            f"{human(self.allocated)} is allocated by PyTorch, and 0 bytes is reserved by PyTorch but unallocated."
        )


def human(nbytes):
    """Return a size as CUDA's messages write it: ``'512 bytes'``, ``'1.50 KiB'``, ``'20.00 MiB'``, ``'3.00 GiB'``."""
    if nbytes <= 1024:
        return f"{nbytes} bytes"
    for unit, size in (("KiB", 2**10), ("MiB", 2**20)):
        if nbytes <= size * 1024:
            return f"{nbytes / size:.2f} {unit}"
    return f"{nbytes / 2**30:.2f} GiB"
