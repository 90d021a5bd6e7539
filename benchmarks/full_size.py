"""Full-size training steps on simulated GPUs, without computing them: time and peak memory, in about a minute.

    python benchmarks/full_size.py                    # all; or some by name: resnet50 gpt2 llama

Tensors have shapes only. Llama's 8 thousand million parameters are sharded over 8 ranks by PyTorch's own FSDP2.
"""

import sys
import time

import torch
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.nn.functional import cross_entropy

from d2lmini import sim
from d2lmini.models import GPT2, Llama, resnet50


def two_steps(step):
    """Return the simulated seconds of the second call of ``step()``, and the most bytes in use during it."""
    for _ in range(2):
        torch.sim.synchronize()
        torch.sim.reset_peak_memory_stats()
        begin = sim.now()
        step()
        torch.sim.synchronize()
    return sim.now() - begin, torch.sim.max_memory_allocated()


def on_one_gpu(make, optimizer, shape, **options):
    """Train in bfloat16 by autocast on one simulated A100; return what `two_steps` does."""
    sim.enable(1, gpu="A100-SXM4-80GB", shapes_only=True)
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

    return two_steps(step)


def llama():
    """Train Llama-8B on 8 simulated H100s, two sequences of 8,192 tokens on each; return what rank 0 sees.

    The GPUs are given all the memory they want: without recomputing activations the step does not fit into 80 GB.
    """
    sim.enable(8, gpu="H100-SXM5-80GB", shapes_only=True, memory=2**40)
    return sim.spawn(_llama_rank)[0]


def _llama_rank(rank):
    with torch.device("meta"):
        model = Llama()
    policy = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)
    for part in (*model.layers, model):
        fully_shard(part, mp_policy=policy)
    model.to_empty(device=f"sim:{rank}")
    update = torch.optim.AdamW(model.parameters(), fused=True)
    tokens = torch.zeros(2, 8192, dtype=torch.int64, device=f"sim:{rank}")

    def step():
        update.zero_grad()
        cross_entropy(model(tokens).flatten(0, 1).float(), tokens.flatten()).backward()
        update.step()

    return two_steps(step)


STEPS = {
    "resnet50": lambda: on_one_gpu(lambda: resnet50(True), torch.optim.SGD, (256, 3, 224, 224), momentum=0.9),
    "gpt2": lambda: on_one_gpu(lambda: GPT2(words=50304), torch.optim.AdamW, (16, 1024), fused=True),
    "llama": llama,
}

if __name__ == "__main__":
    for name in sys.argv[1:] or STEPS:
        begin = time.perf_counter()
        seconds, nbytes = STEPS[name]()
        print(f"{name:9} {seconds * 1e3:9.1f} ms simulated on {sim.machine().name}, {nbytes / 2**30:6.1f} GiB at most; "
              f"found in {time.perf_counter() - begin:.0f} s")  # fmt: skip
