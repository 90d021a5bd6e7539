"""The kinds of parallelism beyond one replica a device, by hand: what `torch.distributed` brings ready-made.

    within an example     tensor_parallel    each layer's weights are cut        pipeline    a rank has some layers
    over examples         sharded            replicas that share out what they keep (ZeRO)
    over updates          asynchronous       workers that do not wait for one another

    layout                which of them fits a model, a card and a cluster, and what a step then takes, by formula

All but `asynchronous` and `layout` are written for one rank, with its collectives and messages: run them with
`simgpu.spawn` on simulated GPUs, or under torchrun.
"""

from d2lmini.parallel.asynchronous import Update, arrivals, train_asynchronously
from d2lmini.parallel.layout import Layout, Shape, memory_bytes, step_seconds
from d2lmini.parallel.pipeline import bubble, gpipe, one_f_one_b, run_stage, starts
from d2lmini.parallel.sharded import Unit, shard
from d2lmini.parallel.tensor_parallel import CopyToRanks, RowParallel, SumOverRanks, column_parallel, cut_layer

__all__ = [
    "CopyToRanks",
    "Layout",
    "RowParallel",
    "Shape",
    "SumOverRanks",
    "Unit",
    "Update",
    "arrivals",
    "bubble",
    "column_parallel",
    "cut_layer",
    "gpipe",
    "memory_bytes",
    "one_f_one_b",
    "run_stage",
    "shard",
    "starts",
    "step_seconds",
    "train_asynchronously",
]
