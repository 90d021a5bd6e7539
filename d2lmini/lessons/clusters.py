"""A program that survives the loss of a rank: it stores checkpoints and resumes from the last one.

torchrun --nproc-per-node=2 --max-restarts=1 -m d2lmini.lessons.clusters FOLDER
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist

from d2lmini.distributed.join import connect, join


def main(folder: str, steps: int = 6, every: int = 2, fails: int = 3) -> None:
    """Train one weight; store it after every `every` steps; in the first start, rank 1 dies in step `fails`.

    Args:
        folder: Where the checkpoint lies; all ranks see it.
        steps: How many steps in all.
        every: Steps between checkpoints.
        fails: The step, from 0, in which rank 1 dies.
    """
    join(connect(), torch.device("cpu"), timeout=30)  # each start meets in a store of its own
    rank, start = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    checkpoint, weight, first = Path(folder) / "last.pt", torch.zeros(1), 0
    if checkpoint.exists():
        state = torch.load(checkpoint, map_location="cpu")
        weight, first = state["weight"], state["step"]
    if rank == 0:
        print(f"start {start}: {dist.get_world_size()} ranks, from step {first}", flush=True)
    for step in range(first, steps):
        if start == 0 and step == fails and rank == 1:
            print(f"rank 1 dies in step {step}", flush=True)
            os._exit(1)
        gradient = torch.full((1,), rank + 1.0)
        dist.all_reduce(gradient)
        weight -= gradient
        if rank == 0 and (step + 1) % every == 0:
            torch.save({"weight": weight, "step": step + 1}, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").replace(checkpoint)  # whole or not at all
    if rank == 0:
        print(f"weight after {steps} steps: {weight.item():g}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1])
