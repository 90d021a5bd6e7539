"""Right answers to the exercises on sharding that are written otherwise than the worked solutions."""

import pytest
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.nn import functional as F

from d2lmini import checks


def tensors_and_sums(flat, gradient, shard, optimizer):
    """Collectives on whole tensors, and a sum that is divided."""
    shard.grad = torch.zeros_like(shard)
    dist.reduce_scatter_tensor(shard.grad, gradient)
    shard.grad /= dist.get_world_size()
    optimizer.step()
    dist.all_gather_into_tensor(flat, shard.detach())


def moment_by_moment(layers, root, ranks):
    """Each moment is a sum, and the end of backward is one of them."""
    sizes = [0, *layers, 0]
    moments = [6 * root]
    for i in range(1, len(sizes) - 1):
        moments.append(sum((2 * sizes[i], 2 * sizes[i - 1], 2 * sizes[i], 4 * sizes[i + 1], 2 * root, root)))
    return max(moments) + sum(16 * n / ranks for n in [*layers, root])


def gathered_norms(gradients, limit):
    """One number of each rank is gathered, and scaling never enlarges."""
    mine = torch.stack([g.norm().float() for g in gradients] or [torch.zeros((), device="sim")]).norm()
    norms = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(norms, mine)
    norm = torch.stack(norms).norm().item()
    torch._foreach_mul_(gradients, min(1.0, limit / (norm + 1e-6))) if gradients else None
    return norm


def one_by_one(files, rank, ranks):
    """Numbers are read one at a time."""
    places = [(file, i) for file in files for i in range(len(file))]
    each = -(-len(places) // ranks)
    return torch.tensor([float(file[i]) for file, i in places[rank * each : (rank + 1) * each]])


def trained(net, batches, read):
    """Return losses and each layer's largest output, each as `read` leaves it."""
    optimizer, losses, largest = torch.optim.SGD(net.parameters(), lr=0.5), [], []
    for layer in net.layers:
        layer.register_forward_hook(lambda layer, inputs, output: largest.append(read(output.detach().abs().max())))
    for x in batches:
        optimizer.zero_grad()
        loss = F.mse_loss(net(x), x)
        loss.backward()
        optimizer.step()
        losses.append(read(loss.detach()))
    return losses, largest


def prefetched(net, batches):
    """The host still waits for every layer, but has launched the next layer's gather before."""
    for layer in net.layers:
        fully_shard(layer, reshard_after_forward=layer is not net.layers[-1])
    fully_shard(net)
    for layer, following in zip(net.layers, net.layers[1:]):
        layer.set_modules_to_forward_prefetch([following])
    return trained(net, batches, torch.Tensor.item)


def ahead(net, batches):
    """The last layer is told later that it stays, and the results are tensors on the CPU."""
    for layer in net.layers:
        fully_shard(layer)
    fully_shard(net).layers[-1].set_reshard_after_forward(False, recurse=False)
    losses, largest = trained(net, batches, lambda number: number)
    return torch.stack(losses).cpu(), [number.cpu() for number in largest]


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.zero1_step, tensors_and_sums),
        (checks.fsdp_peak, moment_by_moment),
        (checks.clip_shards, gathered_norms),
        (checks.load_shard, one_by_one),
        (checks.hidden_gathers, prefetched),
        (checks.hidden_gathers, ahead),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)
