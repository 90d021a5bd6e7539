"""Filters of warnings, what was warned of before, and sys.stdout: each rank has its own, as a process has."""

import os
import sys
import warnings

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
if rank == 0:
    warnings.filterwarnings("ignore", message="nothing")
for _ in range(3):
    warnings.warn("once a rank", stacklevel=1)
    warnings.warn("nothing", stacklevel=1)
    dist.barrier(device_ids=[rank])
with warnings.catch_warnings(record=True) as caught:
    warnings.warn("once a rank", stacklevel=1)
print(len(caught))
if rank:
    sys.stdout = open(os.devnull, "w")  # noqa: SIM115 as programs do that print on rank 0 alone
print("only rank 0")
