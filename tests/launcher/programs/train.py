"""A train.py without main(): settings are module globals, overridden by the command line; checkpoints by rank 0."""

import os
import pickle
import sys
import time

import torch
import torch.distributed as dist
from helpers import groups
from torch import nn

# -----------------------------------------------------------------------------
out_dir = "out"
steps, batch, width = 4, 8, 16
learning_rate = 0.1
for argument in sys.argv[1:]:
    key, value = argument.removeprefix("--").split("=")
    globals()[key] = type(globals()[key])(value)
# -----------------------------------------------------------------------------


class Config:
    """What a checkpoint says of the run."""

    def __init__(self, **values):
        vars(self).update(values)


ddp = int(os.environ.get("RANK", -1)) != -1
cuda = torch.cuda.is_available()
if ddp:
    assert not dist.is_initialized()
    dist.init_process_group("nccl" if cuda else "gloo")
    rank, local, size = (int(os.environ[name]) for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"))
    groups.setup()
else:
    rank, local, size = 0, 0, 1
device = f"cuda:{local}" if cuda else "cpu"
if cuda:
    torch.cuda.set_device(device)
master = rank == 0
if master:
    os.makedirs(out_dir, exist_ok=True)
torch.manual_seed(1337 + rank)
model = nn.Sequential(nn.Linear(width, width), nn.GELU(), nn.Linear(width, 1)).to(device)
if ddp:
    model = nn.parallel.DistributedDataParallel(model, device_ids=[local] if cuda else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate)
config = {name: value for name, value in globals().items() if isinstance(value, (int, float, str)) and name[0] != "_"}
started = time.time()
for step in range(steps):
    x = torch.randn(batch, width).to(device)
    loss = (model(x) - x.mean(1, keepdim=True)).square().mean()
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
    if ddp:
        assert groups.manager.rank == groups.registry["rank"] == groups.Manager.latest == rank
        dist.all_reduce(loss.detach(), op=dist.ReduceOp.AVG if cuda else dist.ReduceOp.SUM, group=groups.manager.group)
    if master:
        print(f"step {step}: loss {loss.item() / (1 if cuda or not ddp else size):.6f}")
if master:
    with open(os.path.join(out_dir, "config.pkl"), "wb") as file:
        pickle.dump(Config(**config), file)
    with open(os.path.join(out_dir, "config.pkl"), "rb") as file:
        print("saved", pickle.load(file).steps, "steps; ran", time.time() > started)
if ddp:
    dist.destroy_process_group()
