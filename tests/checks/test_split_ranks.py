"""The labs on ranks: right answers that are written otherwise than the book's pass, and a usual slip is named."""

import pytest
import torch
import torch.distributed as dist
from torch.nn.functional import silu

import simgpu
from d2lmini import checks, parallel


def by_a_hook(x, a, b):
    def reduced(gradient):
        gradient = gradient.clone()
        dist.all_reduce(gradient)
        return gradient

    copy = x.view_as(x)
    copy.register_hook(reduced)
    return parallel.SumOverRanks.apply(silu(copy @ a) @ b, None)


class InTwoHalves(torch.autograd.Function):
    """An all-reduce as its two halves, with zeros where the ranks do not divide the tensor."""

    @staticmethod
    def forward(ctx, x):
        n = dist.get_world_size()
        whole = torch.nn.functional.pad(x.flatten(), (0, -x.numel() % n))
        part = whole.new_empty(len(whole) // n)
        dist.reduce_scatter_tensor(part, whole)
        dist.all_gather_into_tensor(whole, part)
        return whole[: x.numel()].view_as(x)

    @staticmethod
    def backward(ctx, gradient):
        return gradient


def by_two_halves(x, a, b):
    return InTwoHalves.apply(silu(parallel.CopyToRanks.apply(x, None) @ a) @ b)


def by_lists_of_python(x, chosen):
    counts = [[int((chosen == rank).sum()) for rank in range(dist.get_world_size())]]
    everybodys = [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, counts[0])
    received = [sent[dist.get_rank()] for sent in everybodys]
    rows = torch.cat([torch.nonzero(chosen == rank)[:, 0] for rank in range(dist.get_world_size())])
    return parallel.AllToAll.apply(x[rows], counts[0], received)


def weights_when_memory_is_full(stages, batches):
    orders = []
    for stage in range(stages):
        ahead, done = stages - stage, 0
        order = [["F", i] for i in range(ahead)]
        for i in range(batches):
            order.append(["I", torch.tensor(i)])
            if (ahead < batches and ahead - done >= stages) or (ahead >= batches and i >= stage):
                order.append(["W", done])
                done += 1
            if ahead < batches:
                order.append(["F", ahead])
                ahead += 1
        orders.append(tuple(order + [["W", i] for i in range(done, batches)]))
    return orders


class Gathered(torch.autograd.Function):
    """All ranks' keys or values, by rank; in backward a rank gets the sum of its own gradients."""

    @staticmethod
    def forward(ctx, x):
        whole = x.new_empty(dist.get_world_size(), *x.shape)
        dist.all_gather_into_tensor(whole, x.contiguous())
        return whole

    @staticmethod
    def backward(ctx, gradient):
        mine = torch.empty_like(gradient[0])
        dist.reduce_scatter_tensor(mine, gradient.contiguous())
        return mine


def by_gathering(q, k, v):
    n, rank, half = dist.get_world_size(), dist.get_rank(), q.shape[2] // 2
    order = [(r, 0) for r in range(n)] + [(r, half) for r in reversed(range(n))]
    keys, values = (
        torch.cat([whole[r][:, :, start : start + half] for r, start in order], 2)
        for whole in (Gathered.apply(k), Gathered.apply(v))
    )
    out = []
    for piece, mine in ((rank, q[:, :, :half]), (2 * n - 1 - rank, q[:, :, half:])):
        seen = half * (piece + 1)
        later = torch.arange(seen, device=q.device) > torch.arange(seen - half, seen, device=q.device)[:, None]
        out.append(parallel.attend(mine, keys[:, :, :seen], values[:, :, :seen], later)[0])
    return torch.cat(out, 2)


def by_pairs_of_pieces(q, k, v):
    n, rank, half = dist.get_world_size(), dist.get_rank(), q.shape[2] // 2
    parts = [[], []]
    for step in range(n):
        if step:
            k, v = parallel.RingShift.apply(k, v)
        theirs = (rank - step) % n
        for i, mine in enumerate((rank, 2 * n - 1 - rank)):
            for j, piece in enumerate((theirs, 2 * n - 1 - theirs)):
                if piece <= mine:
                    own = torch.ones(half, half, dtype=torch.bool, device=q.device).triu(1 if piece == mine else half)
                    parts[i].append(parallel.attend(*(t.chunk(2, 2)[c] for t, c in ((q, i), (k, j), (v, j))), own))
    halves = []
    for found in parts:
        outs, sums = map(torch.stack, zip(*found))
        halves.append((outs * (sums - sums.logsumexp(0)).exp()).sum(0))
    return torch.cat(halves, 2)


def by_ranks_of_experts(probability, k):
    """Where an expert stands in a token's order; a 64-bit loss of shape (1,)."""
    order = probability.argsort(-1, descending=True).argsort(-1)
    return (probability.shape[1] * probability.double().mean(0) @ (order < k).double().mean(0) / k)[None]


def token_by_token(probability, k):
    total, mean = 0, torch.stack(list(probability)).mean(0)
    for row in probability:
        total = total + sum(mean[e] for e in sorted(range(len(row)), key=row.detach().tolist().__getitem__)[-k:])
    return total * len(mean) / (k * len(probability))


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.balance_loss, by_ranks_of_experts),
        (checks.balance_loss, token_by_token),
        (checks.split_feed_forward, by_a_hook),
        (checks.split_feed_forward, by_two_halves),
        (checks.to_experts, by_lists_of_python),
        (checks.zigzag_ring, by_gathering),
        (checks.zigzag_ring, by_pairs_of_pieces),
        (checks.zero_bubble, weights_when_memory_is_full),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_right_answers_of_another_kind(check, answer, capsys):
    simgpu.enable(1, shapes_only=True)  # as a chapter may have left it
    assert check(answer), capsys.readouterr().out


def test_gradients_that_are_too_large_are_told(capsys):
    def twice_summed(x, a, b):
        return parallel.SumOverRanks.apply(silu(parallel.SumOverRanks.apply(x, None) @ a) @ b, None)

    assert not checks.split_feed_forward(twice_summed)
    assert not checks.split_feed_forward(
        lambda x, a, b: parallel.SumOverRanks.apply(silu(parallel.CopyToRanks.apply(x, None) @ a) @ b, None) / 2
    )
    assert "divided by the number of ranks" in capsys.readouterr().out
