"""DistributedDataParallel, started by torchrun: a script without a function, as many are."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
rank, local = dist.get_rank(), int(os.environ["LOCAL_RANK"])
if cuda:
    torch.cuda.set_device(local)
device = torch.device("cuda", local) if cuda else torch.device("cpu")

torch.manual_seed(0)
x = torch.randn(64, 8)
data = TensorDataset(x, x.sum(1, keepdim=True).sin())
sampler = DistributedSampler(data, shuffle=True, seed=3)
model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
model = DistributedDataParallel(model, device_ids=[local] if cuda else None)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.05)
for epoch in range(2):
    sampler.set_epoch(epoch)
    for inputs, targets in DataLoader(data, batch_size=8, sampler=sampler):
        loss = nn.functional.mse_loss(model(inputs.to(device)), targets.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    total = loss.detach().clone()
    dist.all_reduce(total)
    if rank == 0:
        print(f"epoch {epoch} loss {total.item() / dist.get_world_size():.7f}")
dist.destroy_process_group()
sys.exit(0)
