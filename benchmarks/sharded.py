"""Published runs of FSDP2, DDP and tensor parallelism, taken by torch's own code on simulated ranks, with shapes only.

    python benchmarks/sharded.py [--json chapters/results/sharded.json]

Each row is one of a table of published runs, with what its source leaves open filled in and told. A step is taken
twice; the second counts. Some minutes in all.
"""

import argparse
import gc
import json
from dataclasses import dataclass, replace
from functools import partial

import torch
import torch.distributed as dist
from full_size import last_of
from outputs import writable
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleOutput,
    RowwiseParallel,
    loss_parallel,
    parallelize_module,
)
from torch.nn.functional import cross_entropy
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

import simgpu
from d2lmini.models import Llama
from simgpu.hardware import MACHINES, build, cluster

GIB = 2**30
H100 = build(8, "H100-SXM5-80GB")
META = replace(
    H100,
    gpu=replace(H100.gpu, memory_bytes=96 * GIB, memory_bytes_per_s=2.4e12),
    name="8 × H100-96GB, HBM2e of 2.4 TB/s",
)
ONE_B = partial(Llama, width=2048, layers=16, heads=32, key_heads=8, hidden=8192)
THREE_B = partial(Llama, width=3072, layers=28, heads=24, key_heads=8, hidden=8192)


@dataclass(frozen=True)
class Row:
    """A published run: tokens a second on each GPU, and the peak of its memory in GiB or None; what it was run with."""

    name: str
    kind: str
    tokens_per_s: float
    peak_gib: float | None
    source: str
    assumed: str
    machine: object
    make: object
    sequences: int
    length: int
    mode: str = "eager"


TITAN = "pytorch/torchtitan, benchmarks/llama3_h100_202412_torchtitan.md"
PLAYBOOK = "nanotron/ultrascale-playbook, assets/data/benchmarks"
_META = (
    "2 × 8,192 tokens on a GPU, every second product computed again in backward, cards of 96 GiB and 2.4 TB/s; "
    "their limit of 500 W is not modelled"
)
_SHAPE = "Llama 3.2's shape, sequences of 4,096 tokens"
_DDP = f"{_SHAPE}, no accumulation, nothing computed again"
_P5 = cluster(MACHINES["p5.48xlarge"], 8)
PEAK = round(36.66e9 / GIB, 2)  # of the 1B model, on any number of GPUs
ROWS = [
    Row("Llama-3.1-8B, 8 H100", "FSDP2", 5762, 82.4, TITAN, _META, META, Llama, 2, 8192),
    Row("Llama-3.1-8B, 8 H100, compiled", "FSDP2", 6667, 77.0, TITAN, _META, META, Llama, 2, 8192, "compiled"),
    *(
        Row(
            f"1B, {8 * nodes} H100, {count} sequence{'s' * (count > 1)}",
            "DDP",
            rate,
            PEAK,
            f"{PLAYBOOK}/dp_scaling.html",
            _DDP + "; nodes are p5.48xlarge" * (nodes > 1),
            machine,
            ONE_B,
            count,
            4096,
        )
        for nodes, rate, machine in ((1, 40149.94, H100), (8, 31112.23, _P5))
        for count in (1, 3)
    ),
    Row(
        "3B, 2 H100",
        "TP",
        13923.18,
        None,
        f"{PLAYBOOK}/tp_scaling.html",
        f"{_SHAPE}, 3 of them",
        build(2, "H100-SXM5-80GB"),
        THREE_B,
        3,
        4096,
    ),
    Row(
        "3B, 8 H100",
        "TP",
        10903.32,
        None,
        f"{PLAYBOOK}/tp_scaling.html",
        f"{_SHAPE}, 12 of them",
        H100,
        THREE_B,
        12,
        4096,
    ),
]


def simulate(row):
    """Return tokens a second on each GPU, and the peak of a GPU's memory in GiB."""
    gc.collect()  # the model of the row before, which else is still counted on the GPUs of the same names
    simgpu.enable(machine=row.machine, shapes_only=True, memory=2**40, mode=row.mode)
    seconds, peak = simgpu.spawn(_train, (row,))[0]
    shared = row.machine.count if row.kind == "TP" else 1  # all GPUs of a tensor-parallel group see the same tokens
    return row.sequences * row.length / seconds / shared, peak / GIB


def _train(rank, row):
    with torch.device("meta"):
        model = row.make()
    model = _spread(model, row.kind)
    update = torch.optim.AdamW(model.parameters(), fused=row.kind != "TP", foreach=False)
    tokens = torch.zeros(row.sequences, row.length, dtype=torch.int64, device="sim")

    def step():
        update.zero_grad()
        with torch.autocast("sim", torch.bfloat16, enabled=row.kind == "DDP"):
            scores = model(tokens)
        cross_entropy(scores.flatten(0, 1).float(), tokens.flatten()).backward()
        update.step()

    if row.kind == "TP":
        with loss_parallel():
            return last_of(step)
    return last_of(step)


class ByHand(torch.nn.RMSNorm):
    """As torchtitan wrote it in 2024, operation by operation; PyTorch 2.6 had no kernel for it either."""

    def forward(self, x):
        """Return x of any shape, its last dimension normalised."""
        wide = x.float()
        return (wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + self.eps)).type_as(x) * self.weight


def _spread(model, kind):
    """Return the model as its run spreads it over the ranks, on this rank's GPU."""
    if kind == "FSDP2":
        for norm in (part for part in model.modules() if isinstance(part, torch.nn.RMSNorm)):
            norm.__class__ = ByHand
        policy = MixedPrecisionPolicy(torch.bfloat16, torch.float32)
        for layer in model.layers:
            layer.forward = partial(_selectively, layer.forward)
        for part in (*model.layers, model):
            fully_shard(part, mp_policy=policy)
        return model.to_empty(device="sim")
    if kind == "DDP":
        return torch.nn.parallel.DistributedDataParallel(model.to_empty(device="sim"), gradient_as_bucket_view=True)
    return _tensor_parallel(model.to_empty(device="sim").bfloat16())


def _selectively(forward, *inputs):
    """Keep attention's results and those of every second product, as torchtitan does; compute the others again."""
    kept = {"products": 0}

    def policy(context, func, *args, **options):
        name = str(func)
        if "aten.mm" in name:
            kept["products"] += 1
        save = "scaled_dot_product" in name or ("aten.mm" in name and kept["products"] % 2)
        return CheckpointPolicy.MUST_SAVE if save else CheckpointPolicy.PREFER_RECOMPUTE

    def contexts():
        kept["products"] = 0
        return create_selective_checkpoint_contexts(policy)

    return checkpoint(forward, *inputs, use_reentrant=False, context_fn=contexts)


def _tensor_parallel(model):
    ranks = dist.get_world_size()
    plan = {name: ColwiseParallel() for name in ("q", "k", "v", "gate", "up")} | {
        name: RowwiseParallel() for name in ("out", "down")
    }
    whole = {"output_layouts": Replicate(), "desired_output_layouts": Replicate(), "use_local_output": False}
    plan |= {f"norms.{i}": PrepareModuleOutput(**whole) for i in (0, 1)}  # else each product sums its input's gradient
    mesh = init_device_mesh("sim", (ranks,))
    for layer in model.layers:
        parallelize_module(layer, mesh, plan)
        layer.heads, layer.key_heads = layer.heads // ranks, layer.key_heads // ranks
    return parallelize_module(
        model,
        mesh,
        {
            "words": RowwiseParallel(input_layouts=Replicate()),
            "scores": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False),
        },
    )


def main():
    """Simulate and print the rows, and write them where asked."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", type=writable, metavar="OUT", help="write the rows here")
    parser.add_argument("names", nargs="*", help="only rows whose name or kind contains one of these words")
    options = parser.parse_args()
    found = []
    for row in ROWS:
        if options.names and not any(word in f"{row.name} {row.kind}" for word in options.names):
            continue
        rate, peak = simulate(row)
        found.append(
            {
                "name": row.name,
                "kind": row.kind,
                "published": row.tokens_per_s,
                "simulated": round(rate, 1),
                "published_gib": row.peak_gib,
                "simulated_gib": round(peak, 2),
                "source": row.source,
                "assumed": row.assumed,
            }
        )
        print(
            f"{row.kind:6}{row.name:34}{row.tokens_per_s:10.0f}{rate:10.0f}{rate / row.tokens_per_s - 1:+8.1%}"
            f"{row.peak_gib or 0:8.1f}{peak:8.1f} GiB  {row.assumed}",
            flush=True,
        )
    if options.json:
        with options.json.open("w", encoding="utf-8") as file:
            json.dump(found, file, indent=1)


if __name__ == "__main__":
    main()
