"""Ranks that a program starts one by one as processes: an all-reduce, a queue of results, and exit codes."""

import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size, queue):
    dist.init_process_group("nccl", init_method="tcp://localhost:29501", rank=rank, world_size=size)
    torch.cuda.set_device(rank)
    x = torch.full((1,), float(rank), device="cuda")
    dist.all_reduce(x)
    queue.put(x.item())


if __name__ == "__main__":
    mp.set_start_method("spawn", force=True)
    queue, children = mp.Queue(), []
    for rank in range(3):
        children.append(mp.Process(target=work, args=(rank, 3, queue)))
        children[-1].start()
    print([queue.get() for _ in children])
    for child in children:
        child.join()
    print([child.exitcode for child in children])
