"""Tensor parallelism on a mesh of two dimensions: columns, rows, and gradients averaged over the data-parallel one."""

import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

kind = "cuda" if torch.cuda.is_available() else "cpu"
if kind == "cuda":
    torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
mesh = init_device_mesh(kind, (2, 2), mesh_dim_names=("dp", "tp"))
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4)).to(kind)
parallelize_module(model, mesh["tp"], {"0": ColwiseParallel(), "2": RowwiseParallel()})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, foreach=False)
for step in range(3):
    torch.manual_seed(100 + step)
    x = torch.randn(8, 8).chunk(2)[mesh.get_local_rank("dp")].to(kind)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    for p in model.parameters():
        dist.all_reduce(p.grad.to_local(), group=mesh.get_group("dp"))
        p.grad.to_local().div_(2)
    optimizer.step()
    dist.all_reduce(loss, group=mesh.get_group("dp"))
    if mesh.get_rank() == 0:
        print(f"step {step} loss {loss.item() / 2:.6f}")
dist.destroy_process_group()
