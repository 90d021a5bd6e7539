"""What simulated ranks cost: a training step of a small transformer, as a multiple of ranks × one rank's step.

    python benchmarks/ranks.py [--steps 5] [--rounds 5] [--ranks 1 2 4 8 64] [--kinds ddp fsdp2]

The transformer has 2 layers of width 32 and sees 16 tokens. All ranks share one processor, so that a perfect simulation
takes exactly as long as its ranks' steps one after another: a multiple of 1. Seconds are the process's own on the
processor, so that what else runs on the machine does not count; as its caches and its pace still do, one rank and the
others take turns, and a multiple is the median over the rounds.

A single rank of FSDP2 gathers nothing, so that its multiples hold what torch does besides for several: copies into and
out of the gathered parameters, views, streams. The last column says what that is without any simulation: the same step
of one of so many ranks on the CPU, whose process group moves nothing, as a multiple of a single one's. It is a bound
from below, since each of these operations costs more on a simulated GPU.
"""

import argparse
import statistics
import time
from collections import defaultdict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.testing._internal.distributed.fake_pg import FakeStore

import simgpu

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


def network(device):
    torch.manual_seed(0)
    return nn.Sequential(*[Block() for _ in range(LAYERS)], nn.Linear(WIDTH, WIDTH)).to(device)


def distributed(kind, model, device):
    if kind == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    mesh = init_device_mesh(device, (dist.get_world_size(),))
    for block in model:
        fully_shard(block, mesh=mesh)
    return fully_shard(model, mesh=mesh)


def train(rank, kind, steps, device="sim"):
    """Return the processor's seconds of each step, from when all ranks begin it to when all have ended it."""
    model = distributed(kind, network(device), device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, foreach=True)
    x, seconds = torch.randn(1, TOKENS, WIDTH, device=device), []
    for _ in range(steps + 2):
        dist.barrier()
        begin = time.process_time()
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()
        dist.barrier()
        seconds.append(time.process_time() - begin)
    return seconds[2:]


def simulated(kind, ranks, steps):
    """Return the median seconds of a step of all ranks."""
    simgpu.enable(ranks, gpu="A100-SXM4-80GB", link="NVLink3")
    longest = [max(step) for step in zip(*simgpu.spawn(train, (kind, steps)))]
    return statistics.median(longest)


def on_the_cpu(ranks, steps):
    """Return the median seconds of a step of one of so many ranks of FSDP2, without simulation."""
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=ranks)
    try:
        return statistics.median(train(0, "fsdp2", steps, "cpu"))
    finally:
        dist.destroy_process_group()


def measure(kind, counts, steps, rounds):
    """Print what steps take with each of these numbers of ranks."""
    seconds, multiples, own = (defaultdict(list) for _ in range(3))
    for _ in range(rounds):
        alone = simulated(kind, 1, 4 * steps), on_the_cpu(1, 4 * steps)
        for ranks in counts:
            seconds[ranks].append(simulated(kind, ranks, steps))
            multiples[ranks].append(seconds[ranks][-1] / (ranks * alone[0]))
            own[ranks].append(on_the_cpu(ranks, 4 * steps) / alone[1])
    for ranks in counts:
        took, multiple = statistics.median(seconds[ranks]), statistics.median(multiples[ranks])
        line = f"{kind:8}{ranks:6}{took:10.3f}{ranks / took:21.1f}{multiple:10.2f}"
        print(line + (f"{statistics.median(own[ranks]):12.2f}" if kind == "fsdp2" else ""), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2, 4, 8, 64])
    parser.add_argument("--kinds", nargs="+", default=["ddp", "fsdp2"], choices=["ddp", "fsdp2"])
    options = parser.parse_args()
    print(f"{'':8}{'ranks':>6}{'s a step':>10}{'rank-steps a second':>21}{'multiple':>10}{'torch alone':>12}")
    for kind in options.kinds:
        measure(kind, options.ranks, options.steps, options.rounds)


if __name__ == "__main__":
    main()
