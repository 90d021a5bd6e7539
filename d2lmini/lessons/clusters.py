"""A sum over two levels in real processes: inside groups of two ranks first, then between their leaders.

torchrun --nproc-per-node=4 -m d2lmini.lessons.clusters
"""

import os
import time

import torch
import torch.distributed as dist


def two_levels(per_node):
    """Return this rank's group inside its node, and the group of all nodes' first ranks; every rank must call it.

    Raises:
        ValueError: Where the ranks do not fill whole nodes.
    """
    rank, size = dist.get_rank(), dist.get_world_size()
    if size % per_node:
        raise ValueError(f"expected whole nodes of {per_node} ranks, got {size} ranks")
    firsts = range(0, size, per_node)
    inside = [dist.new_group(list(range(first, first + per_node))) for first in firsts]
    return inside[rank // per_node], dist.new_group(list(firsts))


def add_through_leaders(x, inside, leaders, per_node):
    """Add x up over all ranks, in place: to each node's first rank, over these, and back."""
    first = dist.get_rank() // per_node * per_node
    dist.reduce(x, first, group=inside)
    if dist.get_rank() == first:
        dist.all_reduce(x, group=leaders)
    dist.broadcast(x, first, group=inside)


def main(per_node=2, n=250_000, repeat=5):
    """Print who this rank is; rank 0 also prints whether both sums agree, and the seconds of each."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, groups = dist.get_rank(), two_levels(per_node)
    ways = {"flat": dist.all_reduce, "through leaders": lambda x: add_through_leaders(x, *groups, per_node)}
    sums, best = {}, {}
    for name, add in ways.items():
        times = []
        for _ in range(repeat):
            sums[name] = torch.arange(n, dtype=torch.float32) % 1000 + rank
            dist.barrier()
            begin = time.perf_counter()
            add(sums[name])
            times.append(time.perf_counter() - begin)
        best[name] = min(times)
    for speaker in range(dist.get_world_size()):
        dist.barrier()
        if rank == speaker:
            print(f"rank {rank} of {os.environ['WORLD_SIZE']}, local rank {os.environ['LOCAL_RANK']}", flush=True)
    dist.barrier()
    if rank == 0:
        print(f"both sums agree: {torch.equal(*sums.values())}")
        print(*(f"{name}: {seconds * 1e3:.1f} ms" for name, seconds in best.items()), sep="\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
