"""The kinds of parallelism beyond one replica a device, by hand: what `torch.distributed` brings ready-made.

    within an example     tensor_parallel    each layer's weights are split      pipeline    a rank has some layers
                          sequence           a rank has some tokens              experts     a rank has some experts
    over examples         sharded            replicas that share out what they keep (ZeRO)
    over updates          asynchronous       workers that do not wait for one another

    layout                which of them fits a model and a card; layout_time: what a step then takes, by formula
    layout_search         the fastest of all that fit, on a cluster whose network was measured

    whole_step            a step in such a layout, run whole, to hold the formula against

All but `asynchronous` and `layout…` are written for one rank, with its collectives and messages: run them with
`simgpu.spawn` on simulated GPUs, or under torchrun.
"""

from d2lmini.parallel.all_to_all import AllToAll
from d2lmini.parallel.asynchronous import Update, arrivals, train_asynchronously
from d2lmini.parallel.experts import ExpertParallel, Experts, load_balance_loss, visit
from d2lmini.parallel.layout import Layout, Shape, memory_bytes
from d2lmini.parallel.layout_search import MODELS, measured_seconds, search, speed
from d2lmini.parallel.layout_time import layer_seconds, step_seconds
from d2lmini.parallel.pipeline import bubble, gpipe, one_f_one_b, run_stage, start_times, starts
from d2lmini.parallel.sequence import RingShift, attend, merge, ring_attention, ulysses_attention
from d2lmini.parallel.sharded import Unit, shard
from d2lmini.parallel.tensor_parallel import (
    CopyToRanks,
    RowParallel,
    SumOverRanks,
    column_parallel,
    cut_layer,
    cut_tokens,
)

__all__ = [
    "MODELS",
    "AllToAll",
    "CopyToRanks",
    "ExpertParallel",
    "Experts",
    "Layout",
    "RingShift",
    "RowParallel",
    "Shape",
    "SumOverRanks",
    "Unit",
    "Update",
    "arrivals",
    "attend",
    "bubble",
    "column_parallel",
    "cut_layer",
    "cut_tokens",
    "gpipe",
    "layer_seconds",
    "load_balance_loss",
    "measured_seconds",
    "memory_bytes",
    "merge",
    "one_f_one_b",
    "ring_attention",
    "run_stage",
    "search",
    "shard",
    "speed",
    "start_times",
    "starts",
    "step_seconds",
    "train_asynchronously",
    "ulysses_attention",
    "visit",
]
