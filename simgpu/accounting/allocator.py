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

import torch

BLOCK = 512  # bytes; kMinBlockSize of CUDA's caching allocator


class Block(weakref.ref):
    """A weak reference to a storage, with its address `key` and the bytes `size` that it is counted with.

    stream: what was current on the device when it was allocated, a `queues.Queue`; None without a clock. recorded: the
    other `Queue`s that were named to `record_stream`, in order.
    """

    __slots__ = ("key", "recorded", "size", "stream")


class Allocator:
    """The bytes of the device `index`, of which there are `capacity`. Safe to use from many threads.

    current_stream: a function of `index` that returns the `Queue` on which the calling thread queues work, or None.

    Python tells of a storage's end inside any statement of any thread, where an interrupt would be lost with half the
    work done. So the news only go to a list, by a function of C, and `_settle` subtracts before anything is read
    or added.
    """

    platform = "sim"  # whose memory runs out, in the error

    def __init__(self, index, capacity, current_stream=lambda index: None):
        self.index, self.capacity, self._current_stream = index, capacity, current_stream
        self.peak = self.count = self.failures = 0
        self._allocated = 0  # with what is in `_gone`
        self._blocks = {}  # by the storage's address
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
            self._fail(nbytes)

    def add(self, storage):
        """Count a storage; one that is counted already is counted again only by what it grew or shrank.

        Raises torch.OutOfMemoryError, and counts nothing, if it does not fit.
        """
        nbytes, key = storage.nbytes(), storage._cdata
        size = -(-nbytes // BLOCK) * BLOCK
        with self._lock:
            if self._gone:
                self._subtract()
            blocks = self._blocks
            block = blocks.get(key)
            used = self._allocated + size - (0 if block is None else block.size)
            if used > self.capacity and used > self._allocated:
                self._fail(nbytes)
            if block is None:
                stream, recorded, block = self._current_stream(self.index), [], Block(storage, self._note)
                block.stream, block.recorded, block.key = (
                    stream,
                    recorded,
                    key,
                )  # from here on nothing is called, so no interrupt strikes half-way
                blocks[key] = block
                self.count += 1
            block.size = size
            self._allocated = used
            if used > self.peak:
                self.peak = used

    def block(self, storage):
        """Return the `Block` of a storage, None if it is not counted."""
        self._settle()
        return self._blocks.get(storage._cdata)

    def _settle(self):
        """Subtract what is gone."""
        with self._lock:
            self._subtract()

    def _subtract(self):
        blocks, gone = self._blocks, self._gone
        while gone:
            block = gone[-1]  # not pop: here too nothing is called
            self._allocated -= block.size
            del blocks[block.key], gone[-1]

    def reset_peak(self):
        """Start looking for the largest use anew, from what is in use now."""
        with self._lock:
            self.peak = self.allocated

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

    def _fail(self, nbytes):
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
