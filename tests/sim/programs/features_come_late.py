"""Spawn ranks before torch has loaded what features are about, and load it while ranks run."""

import sys

import torch
import torch.distributed as dist

import simgpu


def total(rank):
    x = torch.ones(1, device="sim")
    dist.all_reduce(x)
    return x.item()


simgpu.enable(2)
assert simgpu.spawn(total) == [2, 2]
print(sorted({"torch._dynamo", "torch.distributed.fsdp", "torch.distributed.pipelining"} & set(sys.modules)))


def sharded(rank):  # the first of these ranks loads FSDP2, FSDP1 and the scaler, while they run
    from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler
    from torch.distributed.tensor import Shard, _random, rand

    torch.manual_seed(0)
    net = torch.nn.Linear(8, 4).sim()
    fully_shard(net)
    one = FullyShardedDataParallel(torch.nn.Linear(8, 4).sim(), device_id=rank)
    (net(torch.ones(2, 8, device="sim")) + one(torch.ones(2, 8, device="sim"))).sum().backward()
    mesh = dist.device_mesh.init_device_mesh("sim", (2,))
    rand(4, device_mesh=mesh, placements=[Shard(0)])
    assert ShardedGradScaler.__init__.__defaults__[-1] is None, "it keeps the group of the rank that loaded it"
    return type(_random._rng_tracker).__name__, id(_random._rng_tracker), net.weight.grad.full_tensor().sum().item()


(kind, one, grad), (again, other, same) = simgpu.spawn(sharded)
print(kind == again, one != other, grad == same, grad)
from torch.distributed import distributed_c10d  # noqa: E402
from torch.distributed.tensor import _random  # noqa: E402

print(_random._rng_tracker, distributed_c10d._world.default_pg)
