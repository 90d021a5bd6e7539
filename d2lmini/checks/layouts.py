"""Checks of the exercises on choosing a layout: the level of ZeRO that fits, and the cuts that a cluster allows."""

from d2lmini.checks.mechanism import Wrong, attempt, check, listed, must_refuse, number, reals, typed


@check
def lowest_level(function):
    """``function(parameters, replicas, memory)``: the lowest level of ZeRO whose states fit, else ValueError."""
    cases = (
        (80, 4, 1280, 0),
        (80, 4, 1279, 1),
        (80, 4, 560, 1),
        (80, 4, 559, 2),
        (80, 4, 440, 2),
        (80, 4, 439, 3),
        (80, 4, 320, 3),
        (10, 1, 160, 0),
        (10**9, 10, 4 * 10**9, 2),
        (8_030_261_248, 64, 55 * 2**30, 1),
        (8_030_261_248, 64, 30 * 2**30, 2),
        (70 * 10**9, 64, 60 * 10**9, 3),
    )
    for parameters, replicas, memory, want in cases:
        given = f"{parameters:,} parameters, {replicas} replicas, {memory:,} bytes"
        answer = attempt(function, parameters, replicas, memory, given=given)
        if isinstance(answer, bool) or number(answer) != want:
            got = answer if type(answer) is int else typed(answer)
            raise Wrong(f"{given}: expected level {want}, got {got}{_kept(parameters, replicas, want)}")
    for parameters, replicas, memory in ((80, 4, 319), (10, 1, 159)):
        given = f"{parameters} parameters, {replicas} replicas, {memory} bytes, of which level 3 needs one more"
        must_refuse(function, parameters, replicas, memory, given=given)
    return "the first level that fits; each higher one divides one more of state, gradients and parameters"


def _kept(parameters, replicas, level):
    parts = [size * parameters / (replicas if level >= cut else 1) for size, cut in ((2, 3), (2, 2), (12, 1))]
    return f" (level {level} keeps {sum(parts):,.0f} bytes: {', '.join(f'{part:,.0f}' for part in parts)})"


@check
def possible_layouts(function):
    """``function(gpus, per_node, heads, layers)``: every (data, tensor, pipeline) that GPUs, heads and layers allow."""
    for gpus, per_node, heads, layers in (
        (4, 4, 8, 8),
        (16, 8, 12, 10),
        (12, 6, 12, 12),
        (24, 6, 24, 9),
        (1, 1, 3, 5),
        (64, 8, 32, 6),
        (10, 10, 30, 32),
    ):
        given = f"{gpus} GPUs, {per_node} in each node, {heads} heads, {layers} layers"
        answer = attempt(function, gpus, per_node, heads, layers, given=given)
        found = listed(answer, unordered=True)
        got = None if found is None else [reals(item, 3) for item in found]
        if got is None or None in got:
            raise Wrong(f"{given}: expected a list of (data, tensor, pipeline), got {typed(answer)}")
        want = {
            (gpus // tensor // pipeline, tensor, pipeline)
            for tensor in range(1, gpus + 1)
            for pipeline in range(1, gpus // tensor + 1)
            if gpus % (tensor * pipeline) == 0 and _why_not(tensor, pipeline, per_node, heads, layers) is None
        }
        _compare(given, got, want, gpus, (per_node, heads, layers))
    return "tensor ranks divide the heads and stay in one node, stages divide the layers, replicas are what is left"


def _why_not(tensor, pipeline, per_node, heads, layers):
    """Return in words why a cut is not possible, None where it is."""
    if per_node % tensor:
        return f"groups of {tensor} neighbours do not all lie inside nodes of {per_node}"
    if heads % tensor:
        return f"{tensor} tensor ranks do not divide {heads} heads"
    return f"{pipeline} stages do not divide {layers} layers" if layers % pipeline else None


def _compare(given, got, want, gpus, limits):
    for data, tensor, pipeline in got:
        if data * tensor * pipeline != gpus:
            raise Wrong(f"{given}: {data} × {tensor} × {pipeline} is not {gpus}")
        if why := _why_not(tensor, pipeline, *limits):
            raise Wrong(f"{given}: ({data}, {tensor}, {pipeline}) is not possible, {why}")
    if missing := sorted(want - set(map(tuple, got))):
        more = f", and {len(missing) - 1} more" if missing[1:] else ""
        raise Wrong(f"{given}: {missing[0]} is missing{more}")
    if len(got) > len(want):
        raise Wrong(f"{given}: expected {len(want)} layouts, each once, got {len(got)}")
