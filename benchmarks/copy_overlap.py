"""What a second stream hides of a copy: copies and matrix products on a GPU, alone and together."""

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
