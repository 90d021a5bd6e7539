"""A rank holds the locks of an installed library during a collective: the other ranks do not wait for them."""

import os
import sys
import threading

import torch
import torch.distributed as dist

sys.path.insert(0, sys.argv[1])
import a_library

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
for lock in a_library.locks:
    with lock:
        dist.barrier(device_ids=[rank])
    condition = threading.Condition(lock)
    with condition:
        condition.notify()
print("fine", lock.acquire(False))
