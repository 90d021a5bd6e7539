"""Batch normalisation over the examples of all replicas: two all-reduces in the middle of the forward pass.

    mean = all-reduce(Σ x) / n        each replica adds up its own shard, [C] numbers a layer, and gets the sum of all
    var  = all-reduce(Σ (x − mean)²) / n

An ordinary layer would use its shard's mean, so that the result depends on how the batch was cut (Ioffe and Szegedy
2015 take it over the whole batch). The gradient needs the same sums: a loss depends, through the mean, on every example
of every replica. An all-reduce of tensors that autograd knows gives it without a line of backward.
"""

import torch
from torch.nn.modules.batchnorm import _BatchNorm

from d2lmini.data_parallel.rank_threads import exchange


def all_reduce(x):
    """Return the sum of the ranks' tensors, on the device of `x`; its gradient is the sum of all ranks' gradients."""
    return sum(part.to(x.device) for part in exchange(x))


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batch of all replicas that run in step.

    `DataParallel` and, in one process, `Trainer` run them so. Arguments, parameters and buffers are those of
    ``torch.nn.BatchNorm2d``; in evaluation, and alone, it does what that does. It takes X [n, C, …] of any dimension.

    Raises:
        ValueError: One value a channel in all, or another number of channels.
    """

    @classmethod
    def convert(cls, module):
        """Return the module with all its layers of batch normalisation replaced by this one, parameters kept."""
        if isinstance(module, _BatchNorm) and not isinstance(module, cls):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats)
            made._parameters, made._buffers, made.training = module._parameters, module._buffers, module.training
            return made
        for name, child in module.named_children():
            setattr(module, name, cls.convert(child))
        return module

    def forward(self, X):
        """Return X normalised, [n, C, …]."""
        self._check_input_dim(X)
        if not self.training and self.track_running_stats:
            return super().forward(X)
        x = X.float() if X.dtype in (torch.float16, torch.bfloat16) else X  # too coarse for sums
        axes, shape = [axis for axis in range(X.dim()) if axis != 1], [1, -1] + [1] * (X.dim() - 2)
        n = sum(exchange(x.numel() // x.shape[1]))
        if n == 1:
            raise ValueError("a variance needs more than one value a channel, got 1 from all replicas together")
        mean = all_reduce(x.sum(axes)) / n  # [C]
        centred = x - mean.view(shape)
        var = all_reduce(centred.square().sum(axes)) / n
        if self.track_running_stats:
            self._follow(mean.detach(), var.detach() * (n / (n - 1)))
        normal = centred * (var + self.eps).rsqrt().view(shape)
        return (normal * self.weight.view(shape) + self.bias.view(shape) if self.affine else normal).to(X.dtype)

    @torch.no_grad()
    def _follow(self, mean, var):
        """Let the running statistics go towards this batch's; the variance is the unbiased one, as in torch."""
        self.num_batches_tracked += 1
        share = self.momentum if self.momentum is not None else 1 / self.num_batches_tracked
        self.running_mean += share * (mean - self.running_mean)
        self.running_var += share * (var - self.running_var)

    def _check_input_dim(self, X):
        if X.dim() < 2 or X.shape[1] != self.num_features:
            raise ValueError(f"expected [n, {self.num_features}, …], got {list(X.shape)}")


def is_synchronised(module):
    """Return whether a replica of `module` waits for others in its forward pass."""
    return any(isinstance(part, SyncBatchNorm) for part in module.modules())
