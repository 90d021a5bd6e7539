"""DistributedDataParallel, started by torch.multiprocessing.spawn, as in PyTorch's tutorials."""

import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch import nn
from torch.nn.parallel import DistributedDataParallel as DDP

CUDA = torch.cuda.is_available()
seen = []


def setup(rank, size):
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = "localhost", os.environ.get("PORT", "12355")
    dist.init_process_group("nccl" if CUDA else "gloo", rank=rank, world_size=size)
    if CUDA:
        torch.cuda.set_device(rank)


def train(rank, size, steps, queue):
    setup(rank, size)
    device = f"cuda:{rank}" if CUDA else "cpu"
    torch.manual_seed(rank)  # other inputs on each rank; DDP sends rank 0's weights
    model = DDP(nn.Linear(6, 2).to(device), device_ids=[rank] if CUDA else None)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for _ in range(steps):
        x = torch.randn(4, 6)
        loss = model(x.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        seen.append(loss.item())
    print(f"rank {rank} losses {' '.join(f'{value:.6f}' for value in seen)}", flush=True)
    queue.put((rank, seen[-1]))
    dist.destroy_process_group()


if __name__ == "__main__":
    size = 2
    queue = mp.get_context("spawn").SimpleQueue()
    mp.spawn(train, args=(size, 3, queue), nprocs=size, join=True)
    print("last losses", *(f"{value:.6f}" for _, value in sorted(queue.get() for _ in range(size))))
