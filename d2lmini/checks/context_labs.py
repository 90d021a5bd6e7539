"""The check of the lab on context parallelism: causal ring attention that computes only what the mask leaves."""

import torch
import torch.distributed as dist
from torch.nn import functional as F

import simgpu
from d2lmini.checks.mechanism import Wrong, brief, check, many, need_gpus, scored, typed
from d2lmini.checks.traced import run_on_ranks
from simgpu.hardware import build

SMALL, LONG = (2, 3, 4, 5), (1, 8, 4096, 64)  # sequences, heads, tokens of a rank, width
MOST_MS, BOOK_MS = 18.0, 15.3  # about 25, where one rank computes all pairs in each step


@check
def zigzag_ring(function):
    """``function(q, k, v)``, on rank r of n, with pieces r and 2n − 1 − r of a sequence: its queries' attention."""
    need_gpus(4)
    for ranks in (2, 1, 3, 4):
        _must_be_right(function, ranks)
    need_gpus(4, numbers=False)
    given = f"{LONG[2]:,} tokens on each of 4 ranks"
    with simgpu.use_clock(simgpu.Clock(build(max(4, torch.sim.device_count()), "H100-SXM5-80GB"))):
        ms = 1e3 * _run(function, 4, [[torch.empty(LONG)] * 4] * 4, given, numbers=False)[0]
    told = scored("zigzag_ring", ms, BOOK_MS, "ms", ".1f")
    if ms > MOST_MS:
        raise Wrong(
            f"{given}: the result is right, but takes {told}: leave out what the mask hides; {MOST_MS:g} ms are enough"
        )
    return f"result, gradients and bytes are right on 1 to 4 ranks; {given} take {told}"


def _must_be_right(function, ranks):
    *most, tokens, width = SMALL
    given = f"{many(ranks, 'rank')}, {tokens} tokens on each"
    numbers = torch.Generator().manual_seed(ranks)
    q, k, v, wish = (torch.randn(*most, tokens * ranks, width, generator=numbers) for _ in range(4))
    pieces = torch.arange(tokens * ranks).chunk(2 * ranks)
    held = [torch.cat([pieces[rank], pieces[-1 - rank]]) for rank in range(ranks)]
    parts = [[t[..., mine, :] for t in (q, k, v, wish)] for mine in held]
    inputs = [t.requires_grad_() for t in (q, k, v)]
    out = F.scaled_dot_product_attention(*inputs, is_causal=True)
    wants = [out.detach(), *torch.autograd.grad(out, inputs, wish)]
    names = ("the result", "the gradient of q", "the gradient of k", "the gradient of v")
    for backward in (False, True):  # a rank with a wrong result may wait in backward for ever
        found = _run(function, ranks, parts, given, backward=backward)[1]
        for rank, (mine, answers) in enumerate(zip(held, found)):
            for name, want, got in zip(names if backward else names[:1], wants, answers):
                _must_be_near(want[..., mine, :], got, f"{given}: {name} on rank {rank}")


def _run(function, ranks, parts, given, numbers=True, backward=True):
    """Return the seconds of forward and backward on the clock, and each rank's result and gradients.

    Raises Wrong for more bytes than the chapter's ring sends, for work that the clock would not see, and, on
    shapes alone, for less than half of the ring's bytes.
    """
    with simgpu.trace() as trace:
        found, messages = run_on_ranks(_attend, ranks, given, function, parts, backward, numbers=numbers)
    begin, end = min(times[0] for times, _ in found), max(times[1] for times, _ in found)
    spans = [span for span in trace.spans if begin <= span.start_s < end]
    copied = sum(span.nbytes for span in spans if span.name.startswith("copy "))  # no message, and none on a GPU
    if copied > ranks * parts[0][1].nbytes / 2:  # positions may be copied
        raise Wrong(f"{given}: your code copies {copied:,} bytes between host and GPU; stay on the GPU")
    sent, ring = sum(span.nbytes for span in messages), 4 * (ranks - 1) * ranks * parts[0][1].nbytes
    if sent > ring + 64 * ranks**2:  # and two barriers
        raise Wrong(f"{given}: {sent:,} bytes were sent; the chapter's ring sends {ring:,}")
    if not numbers and sent < ring / 2:  # the least, where half of the queries travel instead of keys and values
        raise Wrong(f"{given}: only {sent:,} bytes were sent; the chapter's ring sends {ring:,}")
    return end - begin, [answers for _, answers in found]


def _attend(rank, function, parts, backward):
    *inputs, wish = (t.to("sim") for t in parts[rank])
    inputs = [t.requires_grad_() for t in inputs]
    dist.barrier()
    torch.sim.synchronize()
    begin = simgpu.now()
    out = function(*inputs)
    if not isinstance(out, torch.Tensor) or not out.requires_grad or out.shape != wish.shape:
        return (begin, begin), [out.detach().cpu() if isinstance(out, torch.Tensor) else out] + [None] * 3
    if backward:
        out.backward(wish)
    torch.sim.synchronize()
    dist.barrier()  # nobody copies its gradients before all are there
    torch.sim.synchronize()
    end = simgpu.now()
    answers = (out, *(t.grad for t in inputs)) if simgpu.has_numbers() else ()
    return (begin, end), [None if t is None else t.detach().cpu() for t in answers]


def _must_be_near(want, found, what):
    if not isinstance(found, torch.Tensor) or found.shape != want.shape:
        raise Wrong(f"{what}: expected a tensor of shape {list(want.shape)}, got {typed(found)}")
    off = (found - want).abs()
    if not off.max() < 1e-4:
        sequence, head, token, _ = (off.nan_to_num(torch.inf) == off.nan_to_num(torch.inf).max()).nonzero()[0].tolist()
        texts = (brief(t[sequence, head, token, 0].item(), 6) for t in (want, found))
        row = f"token {token} of its {want.shape[2]}, head {head}, sequence {sequence}"
        raise Wrong("{}: {} should begin with {}, it begins with {}".format(what, row, *texts))
