"""A replica in each process with torch's DistributedDataParallel, which sums gradients while backward still runs.

    backward   ▐ layer 4 ▌▐ layer 3 ▌▐ layer 2 ▌▐ layer 1 ▌        a bucket of gradients that is full goes at once;
    all-reduce                      ▐ bucket 0 ▌       ▐ bucket 1 ▌   the last batch of an update alone sends any

Source: Li et al. 2020, "PyTorch Distributed", and the reference of ``torch.nn.parallel.DistributedDataParallel``.
"""

import inspect
from contextlib import nullcontext

import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lmini.trainer.processes import ProcessReplica

MIB = 2**20
# Whether all take rank 0's buffers in every forward pass: no, as in one process. Newer torch calls it by a new name.
NAMES = ("forward_sync_buffers", "broadcast_buffers")
BUFFERS = next(name for name in NAMES if name in inspect.signature(DistributedDataParallel).parameters)


class DdpReplica(ProcessReplica):
    """The replica of this process, its gradients summed by DDP. Every parameter must get a gradient in every update.

    DDP takes the mean over the ranks, which is right only for shards of one size: here a hook takes the sum, of
    gradients that have their shard's weight already. On the CPU the sums are gloo's, whose order of adding is its own:
    with two ranks the parameters are those of `processes` and `replicas` to the bit, with more up to rounding.
    """

    name = "ddp"

    def __init__(self, model, loss, optimizer, devices, allreduce, bucket_bytes, settings):
        """Wrap the model and its loss together, so that a rank without a shard can take part as well."""
        super().__init__(model, loss, optimizer, devices, allreduce, bucket_bytes, settings)
        if self.keeping:  # the copies that a compiled step's gradients then need are not where DDP looks for them
            raise ValueError(f'compile={settings.compile} with accumulate={settings.accumulate}: DDP keeps gradients '
                             'in its own memory; choose engine="allreduce"')  # fmt: skip
        self.ddp = DistributedDataParallel(_Loss(model, self._loss), bucket_cap_mb=max(bucket_bytes, 1) / MIB,
                                           gradient_as_bucket_view=True, **{BUFFERS: False})  # fmt: skip
        self.ddp.register_comm_hook(None, _sum)

    @staticmethod
    def _summing(allreduce, devices):
        if allreduce is not None:
            raise ValueError(f'DDP sums gradients in its own way: allreduce={allreduce!r} is for engine="allreduce"')

    def _learn_shard(self, X, y):
        """Add this shard's gradients to the replica's; with the last batch of an update they become all ranks' sums."""
        last = self.batches + 1 == self.settings.accumulate
        with nullcontext() if last else self.ddp.no_sync():
            loss = self.ddp(X, y)
            self._objective(0, loss, len(X)).backward()
        if last:
            self._must_all_have_gradients()
        return loss.detach()

    def _reduce(self):
        """Sum what was accumulated before an epoch ended: a shard without examples adds nothing, but starts DDP."""
        if self.batches < self.settings.accumulate:
            self.ddp(None, None).backward()

    def _must_all_have_gradients(self):
        for name, p in self.modules[0].named_parameters():
            if p.requires_grad and p.grad is None:
                raise ValueError(f'{name} took no part in the loss, and DDP waits for its gradient: engine="allreduce" '
                                 "does not")  # fmt: skip


class _Loss(nn.Module):
    """The model with its loss, as one module: 0 for a shard without examples, whose gradients are zeros."""

    def __init__(self, model, loss):
        super().__init__()
        self.model, self.loss = model, [loss]

    def forward(self, X, y):
        """Return the loss of a shard, which may be None."""
        if X is not None and len(X):
            return self.loss[0](0, X, y)
        return sum((p * 0).sum() for p in self.model.parameters() if p.requires_grad)


def _sum(_, bucket):
    """DDP calls this for each bucket that is full, in place of its own all-reduce and division."""
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])
