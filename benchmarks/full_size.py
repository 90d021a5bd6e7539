"""Full-size training steps on simulated GPUs, without computing them: time and peak memory, in about a minute each.

    python benchmarks/full_size.py                    # three; or some by name: resnet50 gpt2 llama cluster

Tensors have shapes only. Llama's 8 thousand million parameters are sharded over 8 ranks by PyTorch's own FSDP2, and in
`cluster`, which takes minutes, GPT-2's 12 layers over the 512 ranks of 64 nodes.
"""

import resource
import sys
import time

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

import simgpu
from d2lmini.models import GPT2, Llama, resnet50
from simgpu.hardware import MACHINES, cluster


def last_of(step, count=2):
    """Return the simulated seconds of the last call of ``step()`` of so many, and the most bytes in use during it."""
    for _ in range(count):
        torch.sim.synchronize()
        torch.sim.reset_peak_memory_stats()
        begin = simgpu.now()
        step()
        torch.sim.synchronize()
    return simgpu.now() - begin, torch.sim.max_memory_allocated()


def on_one_gpu(make, optimizer, shape, **options):
    """Train in bfloat16 by autocast on one simulated A100; return what `last_of` does."""
    simgpu.enable(1, gpu="A100-SXM4-80GB", shapes_only=True)
    with torch.device("sim:0"):
        model, x = make(), torch.zeros(shape, dtype=torch.float32 if len(shape) > 2 else torch.int64)
        y = torch.zeros(shape[:1] if len(shape) > 2 else shape, dtype=torch.int64)
    update = optimizer(model.parameters(), 0.1, **options)

    def step():
        update.zero_grad()
        with torch.autocast("sim", torch.bfloat16):
            scores = model(x)
        cross_entropy(scores.flatten(0, -2).float(), y.flatten()).backward()
        update.step()

    return last_of(step)


def llama():
    """Train Llama-8B on 8 simulated H100s, two sequences of 8,192 tokens on each; return what rank 0 sees.

    The GPUs are given all the memory they want: without recomputing activations the step does not fit into 80 GB.
    """
    simgpu.enable(8, gpu="H100-SXM5-80GB", shapes_only=True, memory=2**40)
    return simgpu.spawn(_sharded, (Llama, (2, 8192)))[0]


def sharded_over_a_cluster(nodes=64):
    """Train GPT-2 of 12 layers, four sequences of 1,024 tokens on each GPU of a cluster, for one step."""
    simgpu.enable(machine=cluster(MACHINES["DGX-H100"], nodes), shapes_only=True)
    return simgpu.spawn(_sharded, (lambda: GPT2(words=50304), (4, 1024), 1))[0]


def _sharded(rank, make, shape, steps=2):
    with torch.device("meta"):
        model = make()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.layers, model):
        fully_shard(part, mp_policy=policy)
    model.to_empty(device="sim")
    update = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(shape, dtype=torch.int64, device="sim")

    def step():
        update.zero_grad()
        cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
        update.step()

    return last_of(step, steps)


STEPS = {
    "resnet50": lambda: on_one_gpu(lambda: resnet50(True), torch.optim.SGD, (256, 3, 224, 224), momentum=0.9),
    "gpt2": lambda: on_one_gpu(lambda: GPT2(words=50304), torch.optim.AdamW, (16, 1024), fused=True),
    "llama": llama,
    "cluster": sharded_over_a_cluster,
}

if __name__ == "__main__":
    names = sys.argv[1:] or list(STEPS)[:3]
    if unknown := [name for name in names if name not in STEPS]:
        sys.exit(f"full_size.py: unknown step {unknown[0]!r}: choose some of {', '.join(STEPS)}")
    for name in names:
        begin, own = time.perf_counter(), time.process_time()
        seconds, nbytes = STEPS[name]()
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name:9} {seconds * 1e3:9.1f} ms simulated on {simgpu.machine().name}, {nbytes / 2**30:6.1f} GiB, "
            f"found in {time.perf_counter() - begin:.0f} s, {time.process_time() - own:.0f} s of one processor, "
            f"{memory:.1f} GiB of this machine's memory"
        )
