"""Checks of the labs on layers, schedules and experts that are split over ranks: they run on simulated ranks."""

import torch
from torch.nn.functional import silu

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, listed, many, number, typed
from d2lmini.checks.traced import run_on_ranks
from d2lmini.parallel import start_times

# Ranks, rows of x, its width, hidden units: so many that weights are more bytes than two all-reduces, and ranks divide
# the numbers that are reduced.
FEED_FORWARDS = ((2, 2, 4, 14), (1, 2, 3, 2), (4, 4, 3, 20))
WIDTH = 64  # of a token that goes to an expert


@check
def split_feed_forward(function):
    """``function(x, a, b)``, on every rank, with its columns of A and rows of B: silu(x A) B, and its gradients."""
    numbers = torch.Generator().manual_seed(0)
    for ranks, tokens, width, hidden in FEED_FORWARDS:
        shapes = (tokens, width), (width, hidden), (hidden, width + 1), (tokens, width + 1)
        x, A, B, wish = (torch.randn(shape, generator=numbers) for shape in shapes)
        given = f"{many(ranks, 'rank')}, x {list(x.shape)}, A {list(A.shape)} and B {list(B.shape)} in all"
        parts = list(zip(A.chunk(ranks, 1), B.chunk(ranks, 0)))
        answers, messages = run_on_ranks(_feed, ranks, given, function, x, parts, wish)
        inputs = [t.clone().requires_grad_() for t in (x, A, B)]
        y = silu(inputs[0] @ inputs[1]) @ inputs[2]
        dx, dA, dB = torch.autograd.grad(y, inputs, wish)
        for rank, found in enumerate(answers):
            want = y.detach(), dx, dA.chunk(ranks, 1)[rank], dB.chunk(ranks, 0)[rank]
            for name, w, f in zip(("the result", "the gradient of x", "that of a", "that of b"), want, found):
                _must_be_near(w, f, f"{given}: {name} on rank {rank}", ranks)
        _must_reduce_twice(messages, 2 * (ranks - 1) * 4 * (y.numel() + x.numel()), given)
    return "the result and all gradients are right, for one all-reduce forward and one backward"


def _feed(rank, function, x, parts, wish):
    inputs = [t.clone().to("sim").requires_grad_() for t in (x, *parts[rank])]
    y = function(*inputs)
    if not isinstance(y, torch.Tensor) or not y.requires_grad:
        return y.cpu() if isinstance(y, torch.Tensor) else y, None, None, None
    y.backward(wish.to("sim"))
    return [None if t is None else t.detach().cpu() for t in (y, *(t.grad for t in inputs))]


def _must_reduce_twice(messages, least, given):
    reduces = sum(span.place == "gpu0" and span.name.startswith("all_reduce") for span in messages)
    if reduces > 2:
        raise Wrong(f"{given}: {reduces} all-reduces; one in forward and one in backward are enough")
    sent = sum(span.nbytes for span in messages)
    if sent > least:
        raise Wrong(f"{given}: {sent:,} bytes were sent; one all-reduce each way sends {least:,}")


def _must_be_near(want, found, what, ranks):
    if not isinstance(found, torch.Tensor) or found.shape != want.shape:
        raise Wrong(f"{what}: expected a tensor of shape {list(want.shape)}, got {typed(found)}")
    if torch.allclose(found, want, rtol=1e-4, atol=1e-4):
        return
    for slip, text in ((want / ranks, "divided by"), (want * ranks, "times")):
        if torch.allclose(found, slip, rtol=1e-3, atol=1e-4):
            raise Wrong(f"{what}: it is the right one {text} the number of ranks")
    worst = (found - want).abs().argmax()
    numbers = (brief(t.flatten()[worst].item(), 6) for t in (want, found))
    raise Wrong("{}: expected {} where it is farthest off, got {}".format(what, *numbers))


@check
def zero_bubble(function):
    """``function(stages, batches)``: orders of F, I and W that take 3 m + p − 1 and keep p micro-batches at most."""
    for stages, batches in ((4, 8), (1, 3), (2, 2), (3, 3), (3, 7), (5, 12)):
        given = f"{many(stages, 'stage')}, {many(batches, 'micro-batch', 'es')}"
        answer = attempt(function, stages, batches, given=given)
        orders = [_steps(order, given, stage) for stage, order in enumerate(listed(answer, stages) or [])]
        if not orders:
            raise Wrong(f"{given}: expected a list of {many(stages, 'order')}, got {typed(answer)}")
        for stage, order in enumerate(orders):
            _must_be_complete(order, batches, f"{given}, stage {stage}", stages)
        try:
            ranks = [[(stage, *step) for step in order] for stage, order in enumerate(orders)]
            begin = start_times(ranks, dict.fromkeys("FIW", 1.0))
        except ValueError as stuck:
            raise Wrong(f"{given}: {stuck}") from stuck
        took, best = max(begin.values()) + 1, 3 * batches + stages - 1
        if took > best:
            hint = " (1F1B with whole backwards takes as long)" if took == 3 * (batches + stages - 1) else ""
            raise Wrong(f"{given}: it takes {took:g} units of time{hint}; {best} are possible")
    return "a step takes 3 m + p - 1 units of time, and no stage keeps more than p micro-batches"


def _steps(order, given, stage):
    steps = [listed(step, 2) for step in listed(order) or []]
    if not steps or None in steps or any(step[0] not in ("F", "I", "W") or number(step[1]) is None for step in steps):
        raise Wrong(f'{given}, stage {stage}: expected pairs as ("F", 0), ("I", 0) or ("W", 0), got {brief(order)}')
    return [(kind, int(number(i))) for kind, i in steps]


def _must_be_complete(order, batches, given, stages):
    wanted = sorted((kind, i) for kind in "FIW" for i in range(batches))
    if sorted(order) != wanted:
        odd = sorted(set(order) ^ set(wanted)) or sorted(step for step in set(order) if order.count(step) > 1)
        raise Wrong(
            f"{given}: each of F, I and W must stand once for each micro-batch; look at {''.join(map(str, odd[0]))}"
        )
    for i in range(batches):
        if not order.index(("F", i)) < order.index(("I", i)) < order.index(("W", i)):
            raise Wrong(f"{given}: micro-batch {i} needs F before I before W")
    now = 0
    for kind, i in order:
        now += {"F": 1, "I": 0, "W": -1}[kind]
        if now > stages:
            raise Wrong(f"{given}: at {kind}{i} it keeps the activations of {now} micro-batches, at most {stages} fit")


@check
def to_experts(function):
    """``function(x, chosen)``, on every rank: the tokens that chose this rank, by the rank that had them, in order."""
    cases = (
        [[0, 0, 1, 0], [1, 0, 0, 1]],
        [[0, 0]],
        [[1, 0, 1], [1], [1, 2, 1, 1, 0]],
        [[3, 1, 3, 0, 3], [2, 3], [3], [0, 3, 1]],
        [[1, 1], [1]],
    )
    for chosen in cases:
        given = f"ranks' tokens choose {', '.join(map(str, chosen))}"
        numbers = [[10_000.0 * rank + i for i in range(len(mine))] for rank, mine in enumerate(chosen)]
        answers, messages = run_on_ranks(_dispatch, len(chosen), given, function, numbers, chosen)
        pairs = [pair for mine, their in zip(numbers, chosen) for pair in zip(mine, their)]
        for rank, (got, gradient) in enumerate(answers):
            want = [token for token, expert in pairs if expert == rank]
            rows = isinstance(got, torch.Tensor) and got.dim() == 2 and got.shape[1] == WIDTH
            if not rows or got[:, 0].tolist() != want or not torch.equal(got, got[:, :1].expand_as(got)):
                shown = brief(got[:, 0].tolist()) if rows else typed(got)
                raise Wrong(f"{given}: rank {rank} expected the tokens {brief(want)} (first numbers), got {shown}")
            if gradient is None or not torch.equal(gradient, torch.full((len(numbers[rank]), WIDTH), 3.0)):
                raise Wrong(f"{given}: the gradient does not find its way back to rank {rank}: got {brief(gradient)}")
        leave = sum(expert != rank for rank, mine in enumerate(chosen) for expert in mine)
        sent = sum(span.nbytes for span in messages)
        enough = 2 * 4 * WIDTH * leave + 64 * len(chosen) ** 2  # there and back, and some counts
        if sent > enough:
            raise Wrong(
                f"{given}: {sent:,} bytes were sent, {enough:,} suffice; send each token to its expert's rank only"
            )
    return "each expert has the tokens that chose it, and their gradients go back"


def _dispatch(rank, function, numbers, chosen):
    x = torch.tensor(numbers[rank], device="sim")[:, None].repeat(1, WIDTH).requires_grad_()
    got = function(x, torch.tensor(chosen[rank], device="sim"))
    if isinstance(got, torch.Tensor) and got.requires_grad:
        (3 * got).sum().backward()
    return (got.detach().cpu() if isinstance(got, torch.Tensor) else got), (None if x.grad is None else x.grad.cpu())
