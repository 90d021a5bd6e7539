"""The chapter's program in real processes: DDP over gloo, on the CPU.

torchrun --nproc-per-node=2 -m d2lmini.lessons.ddp parameters.pt
"""

import os
import sys

import torch
import torch.distributed as dist
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from d2lmini.data.datasets import load_data_digits
from d2lmini.models.lenet import LeNet


def train_digits(rank, device, digits, epochs=2):
    """Train LeNet as one of several ranks; return its parameters."""
    dist.init_process_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(LeNet().to(device))
    torch.manual_seed(1 + rank)  # from here on, other random numbers
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    sampler = DistributedSampler(digits)
    loader = DataLoader(digits, batch_size=64, sampler=sampler)
    for epoch in range(epochs):
        sampler.set_epoch(epoch)  # without it, all epochs have one order
        for X, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(X.to(device)), y.to(device)).backward()
            optimizer.step()
    return torch.cat([p.detach().flatten() for p in model.parameters()]).cpu()


def main():
    """Train as the rank that torchrun names; rank 0 writes the parameters to the file given on the command line."""
    train_iter, _ = load_data_digits(batch_size=64)
    digits = TensorDataset(train_iter.images / 255, train_iter.labels)
    rank = int(os.environ["RANK"])
    parameters = train_digits(rank, "cpu", digits, epochs=1)
    if rank == 0:
        torch.save(parameters, sys.argv[1])
        print(f"rank 0 of {dist.get_world_size()} wrote {len(parameters):,} parameters")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
