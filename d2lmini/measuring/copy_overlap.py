"""Copies underneath computation: a loop over batches that lets a second stream hide what a copy takes.

A stream is a queue: what it holds runs in order, so a copy and a product in ONE stream never run at the same time,
whether or not the host waited. Only a second stream lets the copy engine and the multiprocessors work at once.

    blocking            stream 0   ══copy══╡ ══product══            the host waits here ╡
    one stream          stream 0   ══copy══  ══product══
    two streams         stream 0   ══product══
                        stream 1   ══copy══
"""

import itertools
from functools import partial

import torch
from torch.utils._pytree import tree_map

from d2lmini.devices import streams


def prefetch(batches, device):
    """Yield each batch on `device`, while the next is on its way there in a second stream.

    A batch is a tensor, or a tuple or list of them, in pinned memory: from pageable memory the copies are right but
    make the host wait. Three batches can be on the device at a time: the one that the caller still holds, the one that
    it gets, and the next. On a device without streams each batch is copied when its turn comes.
    """
    device = torch.device(device)
    moved = partial(tree_map, lambda tensor: tensor.to(device, non_blocking=True))
    module = streams(device)
    if module is None:
        yield from map(moved, batches)
        return
    copying = module.Stream(device)

    def fetch(batch):
        # Memory of an earlier batch may be reused here: what still computes with it must have finished.
        copying.wait_stream(module.current_stream(device))
        with module.stream(copying):
            return moved(batch), copying.record_event()

    iterator = iter(batches)
    waiting = [fetch(batch) for batch in itertools.islice(iterator, 1)]
    while waiting:
        batch, arrived = waiting.pop()
        module.current_stream(device).wait_event(arrived)
        waiting = [fetch(following) for following in itertools.islice(iterator, 1)]
        yield batch
