"""What torchrun gives a new process: arguments, environment, logging, random numbers, and `__main__` for pickles."""

import logging
import os
import pickle
import random
import sys
from dataclasses import dataclass

import torch
import torch.distributed as dist


@dataclass
class Mine:
    rank: int


number = int(os.environ["RANK"])
assert __name__ == "__main__"
assert sys.argv[1:] == ["--flag", "3"]
assert not dist.is_initialized()
assert torch.cuda.current_device() == 0
assert torch.cuda.device_count() == 4
assert pickle.loads(pickle.dumps(Mine(number))) == Mine(number)
logging.basicConfig(level=logging.INFO if number == 0 else logging.ERROR, force=True)
dist.init_process_group("nccl")
torch.cuda.set_device(number)
everybody = [None] * 4
dist.all_gather_object(everybody, Mine(number))
assert everybody == [Mine(rank) for rank in range(4)]
draws = [torch.rand(1).item(), random.random(), torch.rand(1, device="cuda").item()]
logging.info("only rank 0 says so")
names = "LOCAL_RANK WORLD_SIZE LOCAL_WORLD_SIZE GROUP_RANK ROLE_RANK MASTER_ADDR TORCHELASTIC_RUN_ID"
print(draws, *(os.environ[name] for name in names.split()))
