"""Copies underneath computation: what a second stream hides, measured, and a loop over batches that makes use of it.

A stream is a queue: what it holds runs in order, so a copy and a product in ONE stream never run at the same time,
whether or not the host waited. Only a second stream lets the copy engine and the multiprocessors work at once.

    blocking            stream 0   ══copy══╡ ══product══            the host waits here ╡
    one stream          stream 0   ══copy══  ══product══
    two streams         stream 0   ══product══
                        stream 1   ══copy══
"""

import itertools

import torch

from d2lmini.devices import streams
from d2lmini.timing import measure, simulated

SIDE = 1024  # rows and columns of the matrices in the products beside a copy: longer than the host calls one


def measure_overlap(device, nbytes=2**22, pinned=True):
    """Time a copy from the host to `device` with matrix products there, in three ways, and each of the two alone.

    nbytes: of the copy; there are as many products as take about as long. pinned: whether the host's memory is
    page-locked. The copy is always asked for first. Returns a dictionary of `timing.Measurement`: "copy" and
    "products" alone, and both together "blocking", "one stream", "two streams".

    Raises ValueError for a device without streams, and for fewer than 4 bytes.
    """
    device = torch.device(device)
    module = streams(device)
    if module is None:
        raise ValueError(f"expected a GPU with streams, got {device}: a copy within the host keeps a core busy")
    if nbytes < 4:
        raise ValueError(f"expected a copy of at least one number, 4 bytes, got {nbytes}")
    source, target = torch.ones(nbytes // 4), torch.empty(nbytes // 4, device=device)
    source = source.pin_memory() if pinned else source
    matrix, second = torch.ones(SIDE, SIDE, device=device), module.Stream(device)

    def copy(non_blocking=False):
        target.copy_(source, non_blocking=non_blocking)

    def products(count):
        for _ in range(count):
            matrix @ matrix

    def beside():
        with module.stream(second):
            copy(non_blocking=True)
        products(count)

    def timed(function):
        return measure(function, *((6, 0) if simulated([device]) else (11, 2)), devices=[device])

    alone = timed(copy)
    count = max(1, round(alone.median / timed(lambda: products(1)).median))
    return {
        "copy": alone,
        "products": timed(lambda: products(count)),
        "blocking": timed(lambda: (copy(), products(count))),
        "one stream": timed(lambda: (copy(non_blocking=True), products(count))),
        "two streams": timed(beside),
    }


def hidden(times):
    """Return which share of the shorter of copy and products the second stream hid; `times` as `measure_overlap` gives.

    0 where one waited for the other all the time, 1 where the shorter one cost nothing.
    """
    saved = times["copy"].median + times["products"].median - times["two streams"].median
    return saved / min(times["copy"].median, times["products"].median)


def prefetch(batches, device):
    """Yield each batch on `device`, while the next is on its way there in a second stream.

    A batch is a tensor, or a tuple or list of them, in pinned memory: from pageable memory the copies are right but
    make the host wait. Three batches can be on the device at a time: the one that the caller still holds, the one that
    it gets, and the next. On a device without streams each batch is copied when its turn comes.
    """
    device = torch.device(device)
    module = streams(device)
    if module is None:
        yield from (_moved(batch, device) for batch in batches)
        return
    copying = module.Stream(device)

    def fetch(batch):
        # Memory of an earlier batch may be reused here: what still computes with it must have finished.
        copying.wait_stream(module.current_stream(device))
        with module.stream(copying):
            return _moved(batch, device), copying.record_event()

    iterator = iter(batches)
    waiting = [fetch(batch) for batch in itertools.islice(iterator, 1)]
    while waiting:
        batch, arrived = waiting.pop()
        module.current_stream(device).wait_event(arrived)
        waiting = [fetch(following) for following in itertools.islice(iterator, 1)]
        yield batch


def _moved(batch, device):
    if isinstance(batch, (tuple, list)):
        return type(batch)(_moved(item, device) for item in batch)
    return batch.to(device, non_blocking=True)
