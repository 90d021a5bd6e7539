"""A pipeline of two stages, 1F1B, with torch.distributed.pipelining."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B

cuda = torch.cuda.is_available()
dist.init_process_group("nccl" if cuda else "gloo")
rank, size = dist.get_rank(), dist.get_world_size()
device = torch.device("cuda", rank) if cuda else torch.device("cpu")
if cuda:
    torch.cuda.set_device(device)
torch.manual_seed(7)
layers = [nn.Sequential(nn.Linear(10, 10), nn.Tanh()) for _ in range(size)]
module = layers[rank].to(device)
stage = PipelineStage(module, rank, size, device)
schedule = Schedule1F1B(stage, n_microbatches=4, loss_fn=nn.functional.mse_loss)
optimizer = torch.optim.SGD(module.parameters(), lr=0.2)
for step in range(3):
    x = torch.cos(torch.arange(80.0) * (step + 1)).view(8, 10).to(device)
    losses = []
    if rank == 0:
        schedule.step(x)
    else:
        schedule.step(target=x.roll(1, 0), losses=losses)
    optimizer.step()
    optimizer.zero_grad()
    if losses:
        print(f"step {step} loss {sum(loss.item() for loss in losses) / len(losses):.6f}")
dist.destroy_process_group()
