"""Data parallelism by hand: one replica of the parameters a device, one shard of the batch a replica.

batch of n examples ──split──►  shard 0 ─ replica 0 ─ gradient 0 ─┐
                                shard 1 ─ replica 1 ─ gradient 1 ─┼─ allreduce: every replica gets the sum
                                …                                 ┘  └► each updates itself, and all stay equal
"""

import torch
from torch.nn import functional as F

from d2lmini.models.lenet import lenet
from d2lmini.timing import Timer


def get_params(params, device):
    """Return a copy of `params` on `device`, ready for gradients."""
    return [p.detach().to(device, copy=True).requires_grad_() for p in params]


def allreduce(data):
    """Replace each tensor of `data`, one per device, by the sum of all."""
    for i in range(1, len(data)):
        data[0] += data[i].to(data[0].device)
    for i in range(1, len(data)):
        data[i].copy_(data[0])


def split_batch(X, y, devices):
    """Return the shards of X and of y: two lists, one tensor per device.

    Their sizes differ by at most one. Raises ValueError when X and y
    differ in length or there are fewer examples than devices.
    """
    n, k = len(X), len(devices)
    if len(y) != n:
        raise ValueError(f"expected {n} labels for {n} examples, got {len(y)}")
    if n < k:
        raise ValueError(f"expected {k} examples or more, one per device, got {n}")
    X_shards = [x.to(device) for x, device in zip(X.tensor_split(k), devices)]
    y_shards = [y.to(device) for y, device in zip(y.tensor_split(k), devices)]
    return X_shards, y_shards


def sgd(params, lr, batch_size):
    """Take a step with gradients that are sums over `batch_size` examples."""
    with torch.no_grad():
        for p in params:
            p -= lr * p.grad / batch_size
            p.grad.zero_()


def train_batch(X, y, replicas, devices, lr):
    """Take one step of SGD: each replica learns from its shard."""
    X_shards, y_shards = split_batch(X, y, devices)
    losses = [
        F.cross_entropy(lenet(X_shard, params), y_shard, reduction="sum")
        for X_shard, y_shard, params in zip(X_shards, y_shards, replicas)
    ]
    for loss in losses:  # backward on every device
        loss.backward()
    for i in range(len(replicas[0])):  # one allreduce a parameter
        allreduce([params[i].grad for params in replicas])
    for params in replicas:
        sgd(params, lr, len(X))


@torch.no_grad()
def evaluate_accuracy_gpu(net, data_iter, device=None):
    """Return the fraction of examples that a network classifies correctly.

    Args:
        net: Maps images [n, …] to logits [n, classes]. A module is evaluated in evaluation mode.
        data_iter: Yields X [n, …] and y [n].
        device: Where batches are moved first; by default a module's own.

    Raises:
        ValueError: There is no example.
    """
    if isinstance(net, torch.nn.Module):
        net.eval()
        device = device or next(net.parameters()).device
    correct, examples = 0, 0
    for X, y in data_iter:
        X, y = X.to(device or X.device), y.to(device or y.device)
        correct += (net(X).argmax(1) == y).sum()  # stays on the device: no waiting inside the loop
        examples += len(y)
    if not examples:
        raise ValueError("expected at least one example to evaluate on, got none")
    return float(correct) / examples


def train(params, devices, train_iter, test_iter, num_epochs, lr, on_epoch=print):
    """Train LeNet; return the first replica, test accuracies, the timer.

    After each epoch, counted from 1, calls ``on_epoch(epoch, accuracy)``.
    The timer holds each epoch's seconds of training, without evaluation,
    read after every device has finished.
    """
    replicas = [get_params(params, device) for device in devices]
    accuracies, timer = [], Timer(devices)
    for epoch in range(1, num_epochs + 1):
        timer.start()
        for X, y in train_iter:
            train_batch(X, y, replicas, devices, lr)
        timer.stop()  # waits for the devices
        accuracy = evaluate_accuracy_gpu(lambda X: lenet(X, replicas[0]), test_iter, devices[0])
        accuracies.append(accuracy)
        on_epoch(epoch, accuracy)
    return replicas[0], accuracies, timer
