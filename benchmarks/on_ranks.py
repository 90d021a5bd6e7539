"""Rows of a table whose steps are taken by torch's own code on simulated ranks: FSDP2 and tensor parallelism."""

import re
from functools import lru_cache

import runs
import sharded
from stacks import named_card

from d2lmini.models import Llama

MODELS = {"Llama-3.1-8B": (Llama, 8192), "3B": (sharded.THREE_B, 4096), "1B": (sharded.ONE_B, 4096)}
MOST = 16  # ranks that are simulated within minutes
_TOGETHER = {2: 3, 4: 8, 8: 12, 16: 16}  # sequences of the source's tensor-parallel runs, "mbs 3..20", by ranks
_METRICS = {"tokens_per_s_per_gpu": 0, "peak_memory_GiB": 1}  # places in what `sharded.simulate` returns


def kind(row):
    """Return how a row's run is spread, "TP" or "FSDP2", or None where that is not on ranks."""
    return "TP" if re.search(r"\bTP\b", row["network"]) else "FSDP2" if "FSDP" in row["precision"] else None


def predict(row):
    """Return what `predict` tells of a row; raises ValueError for a row that cannot be run."""
    name = next((name for name in MODELS if name in row["network"]), None)
    if name is None or row["metric"] not in _METRICS or re.search("float8|fp8", row["precision"], re.IGNORECASE):
        raise ValueError(f"expected one of {', '.join(MODELS)} in bf16, and one of {', '.join(_METRICS)}")
    if not row["count"].isdigit() or not 2 <= int(row["count"]) <= MOST:
        raise ValueError(f"expected 2 to {MOST} ranks, got {row['count']!r}")
    count = int(row["count"])
    on_meta = "96GB" in row["gpu"] and count == sharded.META.count  # the source's cards, which no data sheet knows
    machine = sharded.META if on_meta else _machine(named_card(row["gpu"])[0], row["system"], count)
    make, length = MODELS[name]
    local = re.search(r"local (\d+)", row["batch"])
    mode = "compiled" if "compile" in row["precision"] else "eager"
    sequences = int(local[1]) if local else _TOGETHER.get(count, 3) if kind(row) == "TP" else 3
    found = _simulate(machine, make, kind(row), sequences, length, mode)
    shape = f"{sequences} on a GPU" if local else f"{sequences} at once, Llama 3.2's shape"
    assumed = f"sequences of {length}; {shape}"
    band = f"training {kind(row)} {count} GPUs" + (" memory" if "memory" in row["metric"] else "")
    stack = f"PyTorch, {kind(row)}, {mode}"
    return {"simulated": found[_METRICS[row["metric"]]], "stack": stack, "assumed": assumed, "band": band}


def _machine(gpu, system, count):
    return runs.machine(gpu, count, nodes=runs.P5 if runs.on_p5(system, gpu) else None)


@lru_cache
def _simulate(machine, make, kind, sequences, length, mode):
    row = sharded.Row("", kind, 0, None, "", "", machine, make, sequences, length, mode)
    return sharded.simulate(row)
