"""Threads of a rank, and locks that all ranks share: whoever waits for one lets the other ranks go on."""

import fcntl
import os
import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch
import torch.distributed as dist

rank = int(os.environ["RANK"])
torch.cuda.set_device(rank)
dist.init_process_group("nccl")
items, out = queue.Queue(1), []


def make():
    for i in range(4):
        items.put(i)
    items.put(None)


thread = threading.Thread(target=make)
thread.start()
while (item := items.get()) is not None:
    out.append(item)
thread.join()
with ThreadPoolExecutor(2) as pool:
    out.append(sum(pool.map(lambda i: i * i, range(10))))
with threading.RLock(), open(__file__) as file:
    fcntl.flock(file, fcntl.LOCK_EX)
    time.sleep(1)  # the other rank tries to take it
    fcntl.flock(file, fcntl.LOCK_UN)
try:
    queue.Queue().get(timeout=0.01)
except queue.Empty:
    out.append(threading.Event().wait(0.01))
dist.barrier(device_ids=[rank])
print(out)
