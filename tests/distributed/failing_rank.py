"""`d2lmini.train` as torchrun starts it, but for one rank that fails: arguments are its number, how, and the options.

It fails in its fifth batch. Where torchrun starts the ranks again, "is killed,goes on" does the one at first and the
other afterwards. The digits are replaced by random images, of which there are few.
"""

import os
import signal
import sys
import time

import torch

from d2lmini.data import datasets
from d2lmini.distributed import failures, join
from d2lmini.models import LeNet
from d2lmini.trainer import cli

ACTS = {
    "goes on": lambda: None,
    "is killed": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "hangs": lambda: time.sleep(1000),
}


def images(batch_size, seed=0):
    """Iterators over random images, the same in every process."""
    generator = torch.Generator().manual_seed(0)
    pixels = torch.randint(256, (150, 1, 28, 28), generator=generator, dtype=torch.uint8)
    labels = torch.randint(10, (150,), generator=generator)
    batches = datasets.Batches(pixels, labels, batch_size, shuffle=True, seed=seed)
    return batches, datasets.Batches(pixels, labels, batch_size)


def main(rank, how, words):
    """Train, and let this process fail in its fifth batch when it is that rank."""
    datasets.load_data_digits, connect = images, join.connect
    how = how.split(",")[int(os.environ["TORCHELASTIC_RESTART_COUNT"]) if "," in how else 0]
    learnt, forward = [], LeNet.forward

    def failing(self, X):
        learnt.append(self.training)
        if sum(learnt) == 5 and self.training:
            ACTS[how]()
        return forward(self, X)

    def connecting(*limit):
        store = connect(*limit)
        failures.absent(store, "imported", join.rank(), join.world_size(), 100)  # --timeout is not for importing torch
        return store

    join.connect = connecting
    if int(os.environ["RANK"]) == rank:
        LeNet.forward = failing
    os.write(1, f"process {os.getpid()}\n".encode())  # in one piece, beside what the other rank writes
    return cli.main(words)


def in_one_process(words):
    """Train two replicas on the CPU, with one thread as a rank has; return what the checkpoint holds, the last word."""
    threads, digits = torch.get_num_threads(), datasets.load_data_digits
    datasets.load_data_digits = images
    try:
        torch.set_num_threads(1)
        assert cli.main([*map(str, words), "--devices", "2", "--kind", "cpu"]) == 0
    finally:
        torch.set_num_threads(threads)
        datasets.load_data_digits = digits
    return torch.load(words[-1])


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), sys.argv[2], sys.argv[3:]))
