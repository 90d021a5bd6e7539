"""What simulated ranks cost: a training step of a small transformer, as a multiple of ranks × one rank's step.

    python benchmarks/ranks.py [--steps 5] [--ranks 1 2 4 8 64] [--kinds ddp fsdp2]

The transformer has 2 layers of width 32 and sees 16 tokens. All ranks share one processor, so that a perfect simulation
takes exactly as long as its ranks' steps one after another: a multiple of 1. Seconds are the process's own on the
processor, so that what else runs on the machine does not count. A single rank of FSDP2 gathers nothing, so that its
multiples hold torch's own copies into and out of the gathered parameters too.
"""

import argparse
import statistics
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import fully_shard

from d2lmini import sim

WIDTH, TOKENS, LAYERS = 32, 16, 2


class Block(nn.Module):
    """Attention and two products, each added to what comes in."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.qkv, self.out = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        """Return what the block makes of x [n, tokens, width], in the same shape."""
        q, k, v = self.qkv(self.first(x)).unflatten(-1, (3, 4, -1)).permute(2, 0, 3, 1, 4)
        x = x + self.out(nn.functional.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(self.second(x))))


def network():
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, WIDTH)).to("sim")


def distributed(kind, model):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    for block in model:
        fully_shard(block)
    return fully_shard(model)


def train(rank, kind, steps):
    """Return the processor's seconds of each step, from when all ranks begin it to when all have ended it."""
    model = distributed(kind, network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    x, seconds = torch.randn(1, TOKENS, WIDTH, device="sim"), []
    for _ in range(steps + 2):
        dist.barrier()
        begin = time.process_time()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        dist.barrier()
        seconds.append(time.process_time() - begin)
    return seconds[2:]


def measure(kind, ranks, steps):
    """Return the median seconds of a step of all ranks."""
    sim.enable(ranks, gpu="A100-SXM4-80GB", link="NVLink3")
    longest = [max(step) for step in zip(*sim.spawn(train, (kind, steps)))]
    return statistics.median(longest)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--kinds", nargs="+", default=["ddp", "fsdp2"], choices=["ddp", "fsdp2"])
    options = parser.parse_args()
    print(f"{'':8}{'ranks':>6}{'s a step':>10}{'rank-steps a second':>21}{'multiple':>10}")
    for kind in options.kinds:
        alone = measure(kind, 1, 4 * options.steps)
        for ranks in options.ranks:
            seconds = measure(kind, ranks, options.steps)
            rate, multiple = ranks / seconds, seconds / (ranks * alone)
            print(f"{kind:8}{ranks:6}{seconds:10.3f}{rate:21.1f}{multiple:10.2f}", flush=True)


if __name__ == "__main__":
    main()
