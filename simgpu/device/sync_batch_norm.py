"""The parts of a batch norm over several GPUs, which torch has for CUDA only: `nn.SyncBatchNorm` calls them.

Each GPU reduces its share of the batch to a mean and a 1/√variance for each channel; the shares are gathered and put
together; then each GPU normalises its share with the whole batch's numbers. Backward goes the same way. x: [n, c, …].
Source: the formulas of Ioffe and Szegedy, "Batch Normalization", 2015, for a batch in parts.
"""

import torch

aten = torch.ops.aten


def stats(x, eps):
    """Return the mean and 1/√(variance + eps) of each channel, [c]."""
    variance, mean = torch.var_mean(_wide(x), _others(x), correction=0)
    return mean, (variance + eps).rsqrt()


def gather_stats(x, mean, invstd, running_mean, running_var, momentum, eps, counts):
    """Return mean and 1/√(variance + eps) [c] of a batch whose parts have `mean` and `invstd` [p, c], `counts` [p].

    The running mean and variance, if any, move towards the batch's by the share `momentum`.
    """
    weights = (counts / counts.sum()).to(mean.dtype).unsqueeze(1)
    whole = (weights * mean).sum(0)
    variance = (weights * (invstd.pow(-2) - eps + (mean - whole) ** 2)).sum(0)
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
        unbiased = variance * (counts.sum() / (counts.sum() - 1))
        running_var.lerp_(unbiased.to(running_var.dtype), momentum)
    return whole, (variance + eps).rsqrt()


def gather_stats_of_equal_parts(x, mean, invstd, running_mean, running_var, momentum, eps, count):
    """As `gather_stats`, for parts of `count` numbers each."""
    counts = torch.full((len(mean),), count, dtype=torch.float64, device=mean.device)
    return gather_stats(x, mean, invstd, running_mean, running_var, momentum, eps, counts)


def normalize(x, weight, bias, mean, invstd, eps):
    """Return x normalised, scaled and shifted."""
    result = (_wide(x) - _channels(mean, x)) * _channels(invstd, x)
    if weight is not None:
        result = result * _channels(weight, x) + _channels(bias, x)
    return result.to(x.dtype)


def backward_sums(dy, x, mean, invstd, weight, need_x, need_weight, need_bias):
    """Return the sums over the share of dy and of dy·(x − mean), and the gradients of weight and bias, each [c]."""
    dy = _wide(dy)
    total, product = dy.sum(_others(x)), (dy * (_wide(x) - _channels(mean, x))).sum(_others(x))
    kind = mean.dtype if weight is None else weight.dtype
    return total, product, (product * invstd).to(kind), total.to(kind)


def backward(dy, x, mean, invstd, weight, total, product, counts):
    """Return the gradient of x, from the whole batch's two sums."""
    n = counts.sum()
    centred = (_wide(x) - _channels(mean, x)) * _channels(invstd**2 * product / n, x)
    scale = invstd if weight is None else invstd * weight
    return ((_wide(dy) - _channels(total / n, x) - centred) * _channels(scale, x)).to(x.dtype)


def _wide(x):
    return x.float() if x.dtype in (torch.float16, torch.bfloat16) else x


def _others(x):
    """Return all dimensions but the channels'."""
    return [dim for dim in range(x.dim()) if dim != 1]


def _channels(values, x):
    return values.view(1, -1, *[1] * (x.dim() - 2))


KERNELS = {
    aten.batch_norm_stats.default: stats,
    aten.batch_norm_gather_stats.default: gather_stats_of_equal_parts,
    aten.batch_norm_gather_stats_with_counts.default: gather_stats,
    aten.batch_norm_elemt.default: normalize,
    aten.batch_norm_backward_reduce.default: backward_sums,
    aten.batch_norm_backward_elemt.default: backward,
}
