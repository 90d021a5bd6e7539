"""An error in a process that torch.multiprocessing.spawn has started, caught by the program."""

import torch.multiprocessing as mp


def work(rank):
    if rank == 1:
        raise KeyError("missing")


if __name__ == "__main__":
    try:
        mp.spawn(work, nprocs=2)
    except mp.ProcessRaisedException as error:
        print(error.error_index, "missing" in str(error))
