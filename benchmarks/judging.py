"""What the chapter on the clock asks of published rows: a name, what was fitted to them, what else was possible."""

import re
from dataclasses import replace
from unittest import mock

import runs

from simgpu.accounting import gemms
from simgpu.hardware import HOST_COSTS

CHOSEN = {  # a constant -> the runs that were in sight when it was chosen
    "memory and arithmetic shares": "training on one and on 8 GPUs",
    "nothing: held-out": "other inference, GPT-2, all-reduce in a node",
    "the host's cost": "inference with batch 1 or 4",
    "a T4's multiplications": "inference on a T4 with larger batches",
    "which algorithm NCCL takes": "all-reduce over nodes",
}


def chosen_by(row):
    """Return which constant was chosen with a row in sight, a key of `CHOSEN`."""
    network, inference = row["network"], "inference" in row["network"]
    if network == "all_reduce" and int(row["count"]) > 8:
        return "which algorithm NCCL takes"
    if inference and row["batch"] in ("1", "4"):
        return "the host's cost"
    if row["gpu"] == "T4":
        return "a T4's multiplications"
    held_out = inference or network.startswith(("GPT-2", "all_reduce"))
    return "nothing: held-out" if held_out else "memory and arithmetic shares"


def name_of(row):
    """Return a run's name: the network, the card, the precision and the batch."""
    card = re.search(r"(V100|A100|H100|RTX|T4).*", row["gpu"])[0]
    if row["count"] != "1":
        card = f"{row['count']} × {card}"
    batch = f", batch\u00a0{row['batch']}" if row["batch"].isdigit() else ""
    network = row["network"].replace(" v1.5", "").replace("_", "-")
    precision = row["precision"].split(" ")[0]
    return f"{network}, {card}" + ("" if precision == "-" else f", {precision}") + batch


def short_name(row):
    """Return a run's name without its card."""
    name = re.sub(r", (\d+ × )?([VAH]1\d+|RTX|T4)[^,]*", "", name_of(row))
    name = name.replace("inference", "inf.").replace("pretrain ", "")
    return name.replace("all-reduce", f"all-reduce, {row['count']}")


def with_host_cost(row, seconds):
    """Return a row's simulated rate if an operation cost the host so many seconds."""
    run = runs.read(row)
    cost = HOST_COSTS[run.stack.mode]
    tried = replace(cost, forward_s=seconds, backward_s=seconds * cost.backward_s / cost.forward_s)
    with mock.patch.dict(HOST_COSTS, {run.stack.mode: tried}):
        runs.one_gpu.cache_clear()  # it keeps what it simulated
        rate = runs.simulate(run)
    runs.one_gpu.cache_clear()
    return rate


def with_tiles(row):
    """Return a row's simulated rate of training if depthwise convolutions were matrix multiplications in tiles."""
    with mock.patch.object(gemms, "depthwise", return_value=False):
        step = runs.one_gpu.__wrapped__(runs.read(row))
    return step.examples / (step.forward_s + step.update_s)


def training_ratios(rows, results, run, base):
    """Return network -> [published, simulated] ratio of its training rate as `run` to that as `base`.

    Args:
        rows, results: As `predict.read` and `predict.predict` give them.
        run, base: (first letters of the card, precision).
    """
    rates = {}
    for row, result in zip(rows, results, strict=True):
        if "inference" not in row["network"]:
            rates.setdefault(row["network"], {})[row["gpu"][:4], row["precision"]] = result
    return {name: [of[run][k] / of[base][k] for k in ("published", "simulated")] for name, of in rates.items()}
