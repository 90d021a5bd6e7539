"""Checks of the exercises on clusters: bytes between nodes, their share of a step, servers, serial work, rates."""

import math

from d2lmini.checks.mechanism import Wrong, apart, ask, attempt, check, expected, many, must_be, number, pair


@check
def node_bytes(function):
    """``function(nbytes, nodes, per_node)``: bytes that leave a node in a flat ring, and with two levels."""
    for nbytes, nodes, each in ((4800, 2, 2), (4800, 4, 8), (1200, 3, 4), (960, 1, 8), (960, 5, 1), (1, 2, 1)):
        given, ranks = f"{many(nbytes, 'byte')}, {many(nodes, 'node')} of {each}", nodes * each
        got = ask(function, nbytes, nodes, each, given=given, what="two numbers (flat, two levels)", read=pair)
        flat = 2 * (ranks - 1) / ranks * nbytes if nodes > 1 else 0
        for what, value, want in zip(("the flat ring", "two levels"), got, (flat, 2 * (nodes - 1) / nodes * nbytes)):
            if not math.isclose(value, want, rel_tol=1e-9, abs_tol=1e-9):
                told, found = apart(want, value)
                raise Wrong(f"{given}: with {what} {told} bytes leave a node, got {found}")
    return "a flat ring sends what its last rank in the node passes on; two levels send each node's sum once around"


@check
def network_share(function):
    """``function(nbytes, nodes, per_node, rate, compute)``: the share of a step that a ring's all-reduce takes."""
    for nbytes, nodes, each, rate, compute in (
        (5.36e9, 4, 8, 376e9, 0.08),
        (5.36e9, 4, 8, 11.75e9, 0.08),
        (4e9, 2, 2, 1e9, 6.0),
        (1e9, 3, 1, 25e9, 0.5),
        (1e9, 1, 8, 25e9, 0.5),
    ):
        ranks = nodes * each
        sent = 2 * (ranks - 1) / ranks * nbytes / rate if nodes > 1 else 0.0
        given = f"{nbytes / 1e9:g} GB, {many(nodes, 'node')} of {each}, {rate / 1e9:g} GB/s, {compute:g} s of compute"
        got = ask(function, nbytes, nodes, each, rate, compute, given=given, what="a share from 0 to 1")
        once, across = nbytes / rate, 2 * (nodes - 1) / nodes * nbytes / rate
        slips = {
            "the tensor crosses nearly twice, not once": once / (once + compute),
            "compared with compute alone, not with the whole step": sent / compute,
            "2(k − 1)/k is what two levels send": across / (across + compute),
            "in per cent": 100 * sent / (sent + compute),
        }
        must_be(sent / (sent + compute), got, given=given, slips={k: v for k, v in slips.items() if v})
    return "the ring's bytes over the node's rate, and that time over compute and all-reduce together"


@check
def fewest_servers(function):
    """``function(workers)``: the fewest servers of which none receives more bytes than a rank of a ring."""
    for workers, want in ((2, 2), (3, 3), (4, 3), (5, 4), (8, 5), (9, 6), (64, 33), (1001, 502)):
        given = f"{workers} workers"
        answer = attempt(function, workers, given=given)
        if number(answer) != want:
            raise Wrong(f"{given}: {expected(want, answer)}")
    return "about half as many servers as workers, rounded up to a whole one"


@check
def third_time(function):
    """``function(first, second, workers)``: seconds by Amdahl's law, from two measured (workers, seconds)."""
    for serial, shared, a, b, c in (
        (1, 8, 1, 2, 4),
        (0, 60, 1, 4, 16),
        (3, 0, 2, 5, 9),
        (0.5, 12.3, 4, 2, 64),
        (2, 30, 8, 1, 8),
    ):
        first, second = ((p, serial + shared / p) for p in (a, b))
        given, want = f"{a} and {b} workers took {first[1]:g} and {second[1]:g} s, now {c}", serial + shared / c
        answer = attempt(function, first, second, c, given=given)
        got = number(answer)
        if got is None or not math.isclose(got, want, rel_tol=1e-6):
            raise Wrong(f"{given}: {expected(want, answer, ' s')}")
    return "two times tell what stays and what is shared, and with it every other time"


@check
def scaled_rate(function):
    """``function(step, batch, warmup, base_rate, base_batch)``: linear scaling, reached after `warmup` steps."""
    for batch, warmup, base, base_batch in (
        (512, 4, 0.1, 256),
        (8192, 10, 0.1, 256),
        (64, 0, 0.02, 16),
        (16, 5, 0.02, 16),
        (8, 4, 0.02, 16),
    ):
        for step in (0, 1, max(warmup - 1, 0), warmup, warmup + 7):
            high = base * batch / base_batch
            want = high if step >= warmup else base + (high - base) * step / warmup
            given = f"step {step}, batch {batch}, warm-up of {warmup}, base {base:g} for {base_batch}"
            answer = attempt(function, step, batch, warmup, base, base_batch, given=given)
            got = number(answer)
            if got is None or not math.isclose(got, want, rel_tol=1e-6):
                raise Wrong(f"{given}: {expected(want, answer)}")
    return "from the base rate in a straight line to the scaled one, which stays"
