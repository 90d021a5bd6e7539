"""A step of a model of 20 GB with gradient scaling and a checkpoint: with shapes only, none of it takes memory."""

import sys

import torch
from torch import nn

with torch.device("cuda"):
    model = torch.compile(nn.Sequential(nn.Linear(50_000, 50_000), nn.ReLU(), nn.Linear(50_000, 50_000)))
nn.init.trunc_normal_(model[0].weight, std=0.02)
scaler, optimizer = torch.amp.GradScaler("cuda"), torch.optim.SGD(model.parameters(), lr=0.1)
loss = model(torch.zeros(4, 50_000, device="cuda")).square().mean()
scaler.scale(loss).backward()
stepped = []
optimizer.register_step_post_hook(lambda *_: stepped.append(True))
scaler.step(optimizer)
scaler.update()
print(loss.item(), bool((loss > 2).any()), stepped, torch.cuda.max_memory_allocated() > 4e10, loss)
whole = model[0].weight.detach().cpu()
torch.save(model.state_dict(), sys.argv[1])
