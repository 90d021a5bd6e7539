"""`nn.DataParallel` by hand: a module that splits its batch over devices and brings the results back to the first.

batch ──split──► shard 0 ─ replica 0 ─ output 0 ─┐
                 shard 1 ─ replica 1 ─ output 1 ─┼─ gather ─► outputs, on the first device
                 …                               ┘
backward runs the same way back; where replicas were copied from one parameter, their gradients are added up
"""

import copy
from contextlib import ExitStack
from functools import partial

import torch
from torch import nn
from torch.utils._pytree import tree_flatten, tree_unflatten

from d2lmini.data_parallel.rank_threads import together


def split(inputs, devices):
    """Return shards of a batch, one for each device that gets an example.

    Args:
        inputs: Tensors [n, …] in any nest of tuples, lists and dicts. Every device gets a copy of tensors without
            dimensions, and everything else as it is.
        devices: Where the shards go.

    Returns:
        A list of nests like `inputs`.

    Raises:
        ValueError: The tensors differ in n.
    """

    def part(leaf, rank):
        """Return what a device gets of one leaf."""
        if not torch.is_tensor(leaf):
            return leaf
        rows = leaf.tensor_split(k)[rank] if leaf.dim() else leaf
        return rows.to(devices[rank])

    leaves, nest = tree_flatten(inputs)
    sizes = {len(t) for t in leaves if torch.is_tensor(t) and t.dim()}
    if len(sizes) > 1:
        raise ValueError(f"expected inputs of one length, got {sorted(sizes)}")
    k = min(len(devices), max([1, *sizes]))  # how many devices get a shard
    shards = [[part(leaf, rank) for leaf in leaves] for rank in range(k)]
    return [tree_unflatten(shard, nest) for shard in shards]


def replicate(module, devices):
    """Return a replica of `module` for each device.

    The first has the module's own parameters and buffers, the others have
    copies, from which gradients flow back into the module's own.
    """
    replicas = []
    for rank, device in enumerate(devices):
        tensors = [*module.parameters(), *module.buffers()]
        copies = {id(t): t.to(device, copy=rank > 0) for t in tensors}
        replicas.append(copy.deepcopy(module, copies))  # takes these copies
    return replicas


def run_all(replicas, shards, devices):
    """Call each replica on its shard and return what they return, in order of rank.

    Each runs in a thread, its device being the current one, in the caller's modes of autograd and autocast; where they
    exchange something they wait for each other.

    Args:
        replicas: Modules.
        shards: (inputs, named inputs) for each.
        devices: Of each.
    """
    modes = _modes(devices)
    return together([partial(_call, modes, *each) for each in zip(replicas, shards, devices)])


def gather(outputs, device):
    """Return the replicas' outputs as one batch on `device`; tensors without dimensions become a vector.

    Raises:
        TypeError: An output is no tensor.
    """
    leaves, nests = zip(*(tree_flatten(output) for output in outputs))
    wrong = next((leaf for leaf in leaves[0] if not torch.is_tensor(leaf)), None)
    if wrong is not None:
        raise TypeError(f"expected tensors to gather, got {type(wrong).__name__}")
    columns = [[part.to(device) for part in column] for column in zip(*leaves)]
    joined = [torch.cat(column) if column[0].dim() else torch.stack(column) for column in columns]
    return tree_unflatten(joined, nests[0])


class DataParallel(nn.Module):
    """Run `module` on a shard of the batch on each of `devices`.

    Its parameters, and the outputs, are on the first of them.
    """

    def __init__(self, module, devices):
        """Move the module there.

        Raises:
            ValueError: Without a device.
        """
        super().__init__()
        if not devices:
            raise ValueError("expected at least one device, got none")
        self.module, self.devices = module.to(devices[0]), devices

    def forward(self, *inputs, **named):
        """Return what ``module(*inputs, **named)`` would."""
        shards = split((inputs, named), self.devices)
        devices = self.devices[: len(shards)]
        replicas = replicate(self.module, devices)
        return gather(run_all(replicas, shards, devices), devices[0])


def _modes(devices):
    """Return functions that make the context managers which give another thread this one's modes."""
    grad, inference = torch.is_grad_enabled(), torch.is_inference_mode_enabled()
    modes = [partial(torch.inference_mode, inference), partial(torch.set_grad_enabled, grad)]
    for kind in {torch.device(device).type for device in devices}:
        dtype, enabled = torch.get_autocast_dtype(kind), torch.is_autocast_enabled(kind)
        modes.append(partial(torch.autocast, kind, dtype, enabled))
    return modes


def _call(modes, replica, shard, device):
    with ExitStack() as stack:
        if device.type != "cpu":
            stack.enter_context(torch.get_device_module(device).device(device))
        for mode in modes:
            stack.enter_context(mode())
        return replica(*shard[0], **shard[1])
