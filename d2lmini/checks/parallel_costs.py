"""Checks of the exercises on parallelism: cutting weights and logits, a ring, and a pipeline."""

import math
import sys

import torch
from torch.overrides import TorchFunctionMode

from d2lmini.checks.mechanism import (
    Wrong,
    apart,
    ask,
    attempt,
    brief,
    check,
    expected,
    many,
    must_be,
    must_refuse,
    number,
    reals,
)
from d2lmini.parallel import gpipe, one_f_one_b, starts


def _whole_numbers(answer):
    found = reals(answer)
    return None if found is None or any(n % 1 for n in found) else [int(n) for n in found]


@check
def qkv_rows(function):
    """``function(heads, head_width, ranks, rank)``: a rank's rows of a weight with all q, then all k, then all v."""
    for heads, width, ranks in ((4, 2, 2), (4, 3, 4), (6, 1, 3), (2, 2, 1)):
        each = heads // ranks * width
        for rank in range(ranks):
            want = [part * heads * width + rank * each + row for part in range(3) for row in range(each)]
            given = f"{heads} heads of width {width}, rank {rank} of {ranks}"
            got = ask(function, heads, width, ranks, rank, given=given, what="a list of rows", read=_whole_numbers)
            if got != want:
                raise Wrong(f"{given}: expected the rows {want}, got {brief(got)}{_mixed(got, heads * width)}")
    for heads, width in ((4, 2), (2, 6)):  # 3 ranks divide the 12 rows of the second, and all 6 heads of q, k and v
        must_refuse(function, heads, width, 3, 0, given=f"{heads} heads of width {width} on 3 ranks")
    return "a rank has the same heads of q, k and v, in this order, so that chunk(3) finds its own three"


def _mixed(got, width):
    kinds = [sum(part * width <= row < (part + 1) * width for row in got) for part in range(3)]
    if len(set(kinds)) > 1:
        return f" (that is {kinds[0]} rows of q, {kinds[1]} of k, {kinds[2]} of v)"
    return ""


class _Largest(TorchFunctionMode):
    """The most real numbers in one tensor, array or list that is used in here: by torch, or held by any function."""

    most = 0

    def __enter__(self):
        self._profiler = sys.getprofile()  # the reader's
        sys.setprofile(lambda frame, _, used: self._note(getattr(used, "__self__", used), *frame.f_locals.values()))
        return super().__enter__()

    def __exit__(self, *error):
        sys.setprofile(self._profiler)
        return super().__exit__(*error)

    def __torch_function__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        self._note(*args, result)
        return result

    def _note(self, *values):
        for value in values:
            kind = str(getattr(value, "dtype", ""))
            count = math.prod(getattr(value, "shape", ())) if "float" in kind else 0
            count += sum(isinstance(item, float) for item in value) if isinstance(value, list | tuple) else 0
            self.most = max(self.most, count)


@check
def split_loss(function):
    """``function(parts, targets)``: mean cross-entropy of logits cut by tokens, [n, tokens of a rank] each."""
    numbers = torch.Generator().manual_seed(0)
    cases = (
        (5, (4, 4, 4), 1, 1),
        (12, (3, 6, 2), 1, 1),
        (4, (5,), 1, 1),
        (6, (4, 4), 1000, 1000),
        (2, (8, 8, 8, 8), -1000, 1),
        (1, (4, 5, 6), 1, 1),
    )
    for n, widths, size, spread in cases:
        logits = torch.randn(n, sum(widths), generator=numbers, dtype=torch.float64) * spread + size
        targets = torch.randint(sum(widths), (n,), generator=numbers)
        targets[n // 2], targets[0], targets[-1] = widths[0] - 1, 0, sum(widths) - 1  # first and last tokens of ranks
        given = f"{many(n, 'example')}, {' + '.join(map(str, widths))} entries, logits around {size}"
        _try_loss(function, logits, targets, widths, given)
    return "every rank needs only its own tokens: a largest logit, a sum and the target's logit are all that travels"


def _try_loss(function, logits, targets, widths, given):
    largest = _Largest()

    def watched(*inputs):
        with largest:
            return function(*inputs)

    got = ask(watched, [part.clone() for part in logits.split(widths, 1)], targets, given=given, what="one number")
    want = torch.nn.functional.cross_entropy(logits, targets).item()
    if not math.isclose(got, want, rel_tol=1e-4):  # 32-bit numbers are right too
        told, found = apart(want, got)
        raise Wrong(f"{given}: expected {told}, got {found}{_loss_slip(got, logits, targets, widths)}")
    if len(widths) > 1 and largest.most >= logits.numel():
        raise Wrong(f"{given}: your code used {largest.most} numbers at once, as many as all ranks' logits together")


def _loss_slip(got, logits, targets, widths):
    """Return a hint if `got` is what one of the usual slips gives."""
    if got == -math.inf:
        return " (the sum of an example's exponentials is zero: subtract its own largest logit first)"
    if not math.isfinite(got):
        return " (exp of a large logit: subtract the largest of all parts first)"
    if math.isclose(got, torch.nn.functional.cross_entropy(logits, targets, reduction="sum").item()):
        return " (that is the sum: divide by the number of examples)"
    first = logits[:, : widths[0]]
    if len(widths) > 1 and math.isclose(got, (first.logsumexp(1) - logits.gather(1, targets[:, None])[:, 0]).mean()):
        return " (that sums over the first part alone)"
    return ""


@check
def ring_seconds(function):
    """``function(held)``: what the steps of a causal ring take whose ranks hold these pieces of a sequence."""
    cases = (
        [[0, 1], [2, 3], [4, 5], [6, 7]],
        [[0, 7], [1, 6], [2, 5], [3, 4]],
        [[0, 3], [1, 4], [2, 5]],
        [[6, 3], [1, 0], [2, 7], [4, 5]],
        [[3, 0, 1], [2, 4, 5]],
        [[2], [0, 1, 3]],
        [[0, 1, 2]],
    )
    for held in cases:
        given = f"ranks hold {', '.join(map(str, held))}"
        got = ask(function, [list(mine) for mine in held], given=given, what="a number of seconds")
        ranks = [sum(rank) for rank in zip(*_ring_work(held))]
        slips = {
            "that is without a mask": len(held) * max(map(len, held)) ** 2,
            "that is the mean of the ranks' work, but all wait for the slowest": sum(ranks) / len(held),
            "that is the busiest rank's own work, but not in every step is it the busiest": max(ranks),
        }
        must_be(sum(map(max, _ring_work(held))), got, given=given, unit=" s", slips=slips)
    return "a step takes as long as its busiest rank; with a piece of either end each, all ranks are equally busy"


def _ring_work(held):
    """Return the seconds of each rank in each step."""

    def of(queries, keys):
        return sum(1 if key < query else 0.5 if key == query else 0 for query in queries for key in keys)

    return [[of(mine, held[rank - step]) for rank, mine in enumerate(held)] for step in range(len(held))]


@check
def most_replicas(function):
    """``function(batch, size, stages, idle)``: the most replicas of a 1F1B pipeline whose bubble is at most `idle`."""
    for batch, size, stages, idle, want in (
        (24, 1, 2, 0.25, 8),
        (864, 2, 4, 0.101, 16),
        (20, 1, 4, 0.5, 5),
        (48, 2, 2, 0.125, 3),
        (30, 2, 3, 0.125, 1),
        (6, 2, 1, 0, 3),
        (4, 1, 4, 0.4, 0),
        (10, 4, 1, 0.5, 0),
    ):
        given = f"{batch} sequences, {size} a micro-batch, {many(stages, 'stage')}, a bubble of at most {idle}"
        answer = attempt(function, batch, size, stages, idle, given=given)
        if number(answer) != want:
            raise Wrong(f"{given}: {expected(want, answer)}{_replica_slip(number(answer), batch, size, stages, idle)}")
    return "batch = micro-batches × their size × replicas, and the bubble says how few micro-batches a replica may have"


def _replica_slip(replicas, batch, size, stages, idle):
    """Return a hint that says which condition an answer breaks."""
    if replicas is None or not 1 <= replicas <= batch or replicas % 1:
        return ""
    micro_batches, rest = divmod(batch, size * replicas)
    if rest:
        return " (these do not get equally many whole micro-batches)"
    bubble = (stages - 1) / (micro_batches + stages - 1)
    return f" (each then has {many(micro_batches, 'micro-batch', 'es')}, and is idle for {bubble:.3g} of the time)"


@check
def pipeline_seconds(function):
    """``function(orders, forward, backward)``: when the last step of a schedule ends; ValueError if it never does."""
    cases = ((1, 3, 1, 2), (2, 1, 1, 2), (3, 4, 1, 2), (4, 8, 2, 1), (4, 2, 1, 3))
    for schedule in (gpipe, one_f_one_b):
        for stages, batches, forward, backward in cases:
            given = f"{schedule.__name__}({stages}, {batches}), forward {forward} s, backward {backward} s"
            _try_pipeline(function, schedule(stages, batches), forward, backward, given)
    alone, swapped = ([(way, i) for i in order for way in "FB"] for order in ((0, 1, 2), (1, 0)))
    turned = [("F", 0), ("F", 1), ("B", 1), ("B", 0)]  # unlike the others, this takes longer the longer backward is
    _try_pipeline(function, [*gpipe(1, 2), turned], 1, 2, "two stages, F0 F1 B0 B1 in the first, F0 F1 B1 B0 behind")
    _try_pipeline(function, [alone] * 3, 1, 2, "three stages, F0 B0 F1 B1 F2 B2 in each")
    _try_pipeline(function, [swapped] * 2, 1, 2, "two stages, F1 B1 F0 B0 in each")
    stuck = [("B", 0), ("F", 0)]
    for orders in ([stuck], [stuck, stuck[::-1]]):
        must_refuse(function, orders, 1, 2, given="a first stage that begins with B0, which waits for its own F0")
    must_refuse(function, [alone[:4], swapped], 1, 2, given="F0 B0 F1 B1 in the first stage, F1 B1 F0 B0 in the second")
    return "a step starts when its stage is free and what it needs is there; with none to start it is stuck"


def _try_pipeline(function, orders, forward, backward, given):
    each = [list(order) for order in orders]
    got = ask(function, each, forward, backward, given=given, what="a number of seconds")
    begin, cost = starts(orders, forward, backward), {"F": forward, "B": backward}
    want = max(at + cost[way] for (_, way, _), at in begin.items())
    slips = {
        "that is what one stage computes, without any wait": sum(cost[way] for way, _ in orders[0]),
        "that is what all stages compute together": sum(cost[way] for order in orders for way, _ in order),
        "that is when the last step starts: add what it takes": max(begin.values()),
    }
    must_be(want, got, given=given, unit=" s", slips=slips)
