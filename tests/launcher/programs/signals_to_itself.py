"""A rank sends signals to itself: its handlers and its process number are its own, and SIGTERM ends rank 1."""

import os
import signal

import torch.distributed as dist

rank, got = int(os.environ["RANK"]), []


def handler(number, frame):
    got.append(number)


assert signal.signal(signal.SIGUSR1, handler) == signal.SIG_DFL
assert signal.getsignal(signal.SIGUSR1) is handler
dist.init_process_group("gloo")
numbers = [None] * 2
dist.all_gather_object(numbers, os.getpid())
os.kill(os.getpid(), signal.SIGUSR1)
signal.raise_signal(signal.SIGUSR1)
os.kill(os.getpid(), 0)
try:
    import psutil
except ImportError:
    pass
else:
    assert psutil.Process(os.getpid()).create_time() == psutil.Process().create_time()
print(got, len(set(numbers)), flush=True)
dist.barrier()
if rank == 1:
    os.kill(os.getpid(), signal.SIGTERM)
