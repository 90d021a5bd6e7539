"""FSDP2 with a distributed checkpoint, which another run resumes on another number of ranks."""

import argparse

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

parser = argparse.ArgumentParser()
parser.add_argument("--folder", required=True)
parser.add_argument("--first", type=int, default=0)
parser.add_argument("--last", type=int, default=2)
options = parser.parse_args()

kind = "cuda" if torch.cuda.is_available() else "cpu"
dist.init_process_group("nccl" if kind == "cuda" else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
if kind == "cuda":
    torch.cuda.set_device(rank)
torch.manual_seed(0)
model = nn.Sequential(*(nn.Sequential(nn.Linear(12, 12), nn.Tanh()) for _ in range(3))).to(kind)
mesh = init_device_mesh(kind, (size,))
for block in model:
    fully_shard(block, mesh=mesh)
fully_shard(model, mesh=mesh)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
if options.first:
    state = dict(zip(("model", "optimizer"), get_state_dict(model, optimizer), strict=True))
    dcp.load(state, checkpoint_id=options.folder)
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
for step in range(options.first, options.last):
    x = torch.sin(torch.arange(24 * 12.0) * (step + 1)).view(24, 12).chunk(size)[rank].to(kind)
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"step {step} loss {total.item() / size:.6f}")
model_state, optimizer_state = get_state_dict(model, optimizer)
dcp.save({"model": model_state, "optimizer": optimizer_state}, checkpoint_id=options.folder)
dist.destroy_process_group()
