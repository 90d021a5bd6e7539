"""Gradients summed by torch's DistributedDataParallel while backward still runs, for a trainer over processes.

    backward   ▐ layer 4 ▌▐ layer 3 ▌▐ layer 2 ▌▐ layer 1 ▌        a bucket of gradients that is full goes at once;
    all-reduce                      ▐ bucket 0 ▌       ▐ bucket 1 ▌   the last batch of an update alone sends any

Source: Li et al. 2020, "PyTorch Distributed", and the reference of ``torch.nn.parallel.DistributedDataParallel``.
"""

import inspect
from contextlib import contextmanager, nullcontext

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

MIB = 2**20
# Whether all take rank 0's buffers in every forward pass: no, as in one process. Newer torch calls it by a new name.
NAMES = ("forward_sync_buffers", "broadcast_buffers")
BUFFERS = next(name for name in NAMES if name in inspect.signature(DistributedDataParallel).parameters)


class DdpReducer:
    """A `Reducer` that sums the gradients of a replica over the ranks, as `OverlappedAllreduce` does over devices.

    DDP takes the mean over the ranks, which is right only for shards of one size: here a hook takes the sum, of
    gradients that have their shard's weight already. On the CPU the sums are gloo's, whose order of adding is its own:
    with two ranks the parameters are those of the other engines to the bit, with more up to rounding.
    """

    def __init__(self, module, loss, bucket_bytes):
        """Wrap a replica and its loss together, so that a rank without a shard can take part as well."""
        self.ddp = DistributedDataParallel(
            _Loss(module, loss),
            bucket_cap_mb=max(bucket_bytes, 1) / MIB,
            gradient_as_bucket_view=True,
            **{BUFFERS: False},
        )
        self.ddp.register_comm_hook(None, _sum)
        self.parameters, self._called, self._sent = dict(module.named_parameters()), False, False

    def loss(self, X, y):
        """Return the loss of this rank's shard."""
        self._called = True
        return self.ddp(X, y)

    @contextmanager
    def sending(self, now=True):
        """Let the backward pass inside sum gradients, or only add to them; `finish` comes afterwards.

        Raises:
            ValueError: For a parameter that has no gradient then: DDP would wait for it for ever.
        """
        self._called = False
        with nullcontext() if now else self.ddp.no_sync():
            yield
            if not self._called:  # no shard: DDP's forward pass may communicate too, so that all ranks must call it
                self.ddp(None, None).backward()
        self._sent = now
        for name, p in self.parameters.items() if self._sent else ():
            if p.requires_grad and p.grad is None:
                raise ValueError(
                    f'{name} took no part in the loss, and DDP waits for its gradient: engine="allreduce" does not'
                )

    def finish(self):
        """Sum the gradients where an epoch has ended before its last update was due."""
        if not self._sent:
            self.ddp(None, None).backward()
        self._sent = False


class _Loss(nn.Module):
    """The model with its loss, as one module: 0 for no shard, whose gradients are zeros."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, lambda X, y: loss(model(X), y)  # no module: what a loss has is not trained

    def forward(self, X, y):
        """Return the loss of a shard, which may be None."""
        if X is not None:
            return self.loss(X, y)
        return sum((p * 0).sum() for p in self.model.parameters() if p.requires_grad)


def _sum(_, bucket):
    """DDP calls this for each bucket that is full, in place of its own all-reduce and division."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
