"""Checks of the labs on layouts: three layouts against the best that a search finds, and the layers of stages."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from d2lmini.checks.mechanism import Wrong, ask, attempt, brief, check, many, number, reals, scored, typed
from d2lmini.parallel.layout import Layout, memory_bytes
from d2lmini.parallel.layout_search import H100, MAY_USE, MODELS, NODE, PACE, measured_seconds, search
from d2lmini.parallel.layout_time import step_seconds
from d2lmini.parallel.pipeline import one_f_one_b

GPUS, ENOUGH = 64, 0.9  # of the speed of the fastest layout
GIB = 2**30
RACE = {  # the model, and the sequences of a batch
    "70B": (MODELS["70B"], 256),
    "long": (replace(MODELS["8B"], length=131072), 8),
    "8x7B": (MODELS["8x7B"], 256),
}
SPLITS = ((16, 4, 2), (16, 4, 0.1), (10, 4, 1), (32, 4, 5), (9, 2, 3), (7, 3, 0), (13, 4, 2.5), (8, 8, 3), (5, 1, 2))
SLACK = 1.04  # of a step's time


@check
def choose_layouts(function):
    """``function()``: {"70B", "long", "8x7B": a `Layout` of each on 64 GPUs}, each nearly as fast as the best."""
    given, shares = "three models on 64 GPUs", {}
    answer = attempt(function, given=given)
    if not isinstance(answer, Mapping) or set(answer) != set(RACE):
        got = sorted(answer, key=str) if isinstance(answer, Mapping) else typed(answer)
        raise Wrong(f"{given}: expected a dictionary with the keys {brief(sorted(RACE))}, got {got}")
    mine = best = 0.0
    for name, (shape, sequences) in RACE.items():
        took = _layout_seconds(name, shape, sequences, answer[name])
        least = _best_seconds(name)
        mine, best, share = mine + sum(took.values()), best + least, least / sum(took.values())
        slowest = max((what for what in took if what != "compute"), key=took.get)
        shares[name] = f"{name} {share:.0%}"
        if share < ENOUGH:
            raise Wrong(
                f"{name}: fits, but reaches {share:.0%} of the search's speed, expected at least {ENOUGH:.0%}; of "
                f"{sum(took.values()):.1f} s computing takes {took['compute']:.1f} and {slowest!r} {took[slowest]:.1f}"
            )
    told = scored("choose_layouts", mine, best, "s for the three steps")
    return f"of the search's speed: {', '.join(shares.values())}; {told}"


@cache
def _best_seconds(name):
    shape, sequences = RACE[name]
    speed, layout = search(shape, GPUS, sequences)[0]
    return sequences * shape.length / speed / layout.gpus


def _layout_seconds(name, shape, sequences, layout):
    """Return the parts of a step in the reader's layout; raise Wrong where it is none for this model."""
    layout = _checked(name, layout)
    if layout.gpus != GPUS:
        raise Wrong(f"{name}: expected data × tensor × pipeline × context = {GPUS} GPUs, got {layout.gpus}")
    if (got := layout.data * layout.batch * layout.batches) != sequences:
        raise Wrong(f"{name}: expected data × batch × batches = {sequences} sequences, got {got}")
    try:
        parts = memory_bytes(shape, layout)
        took = step_seconds(shape, layout, H100, measured_seconds, PACE)
    except ValueError as error:
        apart = layout.expert > 1 and layout.expert * layout.tensor > NODE.count
        hint = f"; tensor × expert ranks must fit into a node of {NODE.count}" if apart else ""
        raise Wrong(f"{name}: {error}{hint}") from error
    if sum(parts.values()) > MAY_USE:
        told = ", ".join(f"{what} {nbytes / GIB:.0f}" for what, nbytes in parts.items())
        raise Wrong(f"{name}: needs {sum(parts.values()) / GIB:.0f} GiB, {MAY_USE / GIB:.0f} may be used ({told})")
    return took


def _checked(name, layout):
    """Return a layout with what the lab fixes: gradients of 32 bits, fused norms."""
    if not isinstance(layout, Layout):
        raise Wrong(f"{name}: expected a Layout, got {typed(layout)}")
    sizes = {}
    for field in ("data", "tensor", "pipeline", "batch", "batches", "chunks", "context", "expert", "level", "shards"):
        value, least = number(getattr(layout, field)), 0 if field in ("level", "shards") else 1
        if value is None or value != int(value) or value < least or (field == "level" and value > 3):
            raise Wrong(f"{name}: expected a whole number for {field}, got {brief(getattr(layout, field))}")
        sizes[field] = int(value)
    share = number(layout.recomputed)
    if share is None or not 0 <= share <= 1:
        raise Wrong(f"{name}: expected a share between 0 and 1 for recomputed, got {brief(layout.recomputed)}")
    return replace(layout, **sizes, recomputed=share, sequence=bool(layout.sequence), gradient=4, fused=True)


@check
def stage_layers(function):
    """``function(layers, stages, logits)``: the layers of each stage with which a step of 1F1B takes least."""
    mine = best = 0.0
    for layers, stages, logits in SPLITS:
        given = f"{many(layers, 'layer')} on {many(stages, 'stage')}, logits as long as {many(logits, 'layer')}"
        got = ask(function, layers, stages, logits, given=given, what=f"{many(stages, 'number')} of layers", read=reals)
        if len(got) != stages or any(n != int(n) or n < 1 for n in got) or sum(got) != layers:
            raise Wrong(
                f"{given}: expected {many(stages, 'whole number')} from 1 on that add up to {layers}, got {got}"
            )
        book = _book_split(layers, stages, logits)
        took, least = (_pipeline_seconds(split, logits) for split in (got, book))
        if took > SLACK * least:
            loads = [n + (logits if i == stages - 1 else 0) for i, n in enumerate(got)]
            raise Wrong(
                f"{given}: a step takes {took:g}, it can take {least:g}; your stages take {brief(loads)} for a forward "
                f"pass, and all wait for stage {loads.index(max(loads))}"
            )
        mine, best = mine + took, best + least
    return f"no stage waits for one with more work; {scored('stage_layers', mine, best, 'in all steps', 'g')}"


def _book_split(layers, stages, logits):
    """Return the layers of the stages: one after another to the stage that has least work."""
    split = [1] * stages
    for _ in range(layers - stages):
        work = [*split[:-1], split[-1] + logits]
        split[work.index(min(work))] += 1
    return split


def _pipeline_seconds(split, logits, batches=16):
    """Return what a step of 1F1B takes, a layer's forward pass 1, its backward pass 2, messages nothing."""
    last, ends, free = len(split) - 1, {}, [0.0] * len(split)
    todo = [list(order) for order in one_f_one_b(len(split), batches)]
    while any(todo):
        for stage, order in enumerate(todo):
            kind, i = order[0] if order else ("", 0)
            before = (stage - 1, "F", i) if kind == "F" else (stage + 1, "B", i) if stage < last else (stage, "F", i)
            if kind and (before in ends or before[0] < 0):
                took = (split[stage] + (logits if stage == last else 0)) * (1 if kind == "F" else 2)
                ends[stage, kind, i] = free[stage] = max(free[stage], ends.get(before, 0)) + took
                del order[0]
    return max(free)
