"""The checks of answers that cut, send and compute: right ones of other kinds pass, and wrong ones are told why."""

import heapq
import math
import random
import sys
from itertools import combinations, pairwise, product

import numpy as np
import pytest
import torch
from torch.utils.data import DistributedSampler

from d2lmini import checks

# -- shards and buckets ------------------------------------------------------------------------------------------------


def split(X, y, devices):
    n, k = len(X), len(devices)
    if len(y) != n or n < k:
        raise ValueError(f"{n} examples and {len(y)} labels for {k} devices")
    places = list(pairwise(np.cumsum([0] + [n // k + (i < n % k) for i in range(k)])))
    return tuple(
        tuple(torch.stack([t[i] for i in range(a, b)]).to(device) for (a, b), device in zip(places, devices))
        for t in (X, y)
    )


def weighted(gradients, sizes):
    weights = torch.tensor(sizes, dtype=torch.float64) / np.sum(sizes)
    return torch.tensordot(weights, torch.stack(gradients).double(), dims=1).to(gradients[0].dtype)


def squares(counts, means, variances):
    share = torch.tensor(counts, dtype=torch.float64) / sum(counts)
    mean = share @ torch.stack(means)
    return [mean, share @ (torch.stack(variances) + torch.stack(means) ** 2) - mean**2]


def plan(sizes, limit):
    buckets = []
    for place in reversed(range(len(sizes))):
        if not buckets or sum(sizes[other] for other in buckets[-1]) + sizes[place] > limit:
            buckets.append([])
        buckets[-1].append(place)
    return buckets


def hooks(join, number=int):
    """Return a right bucket_hook that launches with its gradients in what `join` makes of them."""

    def bucket_hook(parameters, buckets, launch):
        waiting = [set(bucket) for bucket in buckets]

        def ready(place):
            for i, bucket in enumerate(buckets):
                if place in waiting[i]:
                    waiting[i].remove(place)
                    if not waiting[i]:
                        waiting[i].update(bucket)
                        launch(number(i), join(parameters[other].grad for other in bucket))

        for place, parameter in enumerate(parameters):
            parameter.register_post_accumulate_grad_hook(lambda _, place=place: ready(place))

    return bucket_hook


def early_hook(parameters, buckets, launch):
    for number, bucket in enumerate(buckets):

        def ready(_, number=number, bucket=bucket):
            launch(number, [parameters[place].grad for place in bucket])

        parameters[bucket[-1]].register_post_accumulate_grad_hook(ready)


def hook_of_incoming_gradients(parameters, buckets, launch):
    here = {}

    def ready(place, gradient):
        here[place] = gradient
        for number, bucket in enumerate(buckets):
            if place in bucket and here.keys() >= set(bucket):
                launch(number, [here.pop(other) for other in bucket])

    for place, parameter in enumerate(parameters):
        parameter.register_hook(lambda gradient, place=place: ready(place, gradient))


# -- processes ---------------------------------------------------------------------------------------------------------


def sampled(n, rank, world_size, epoch):
    sampler = DistributedSampler(range(n), world_size, rank)
    sampler.set_epoch(epoch)
    return list(sampler)


def blocks(n, rank, world_size, epoch):
    each = math.ceil(n / world_size)
    order = np.random.default_rng(epoch).permutation(n)
    return np.resize(order, each * world_size)[rank * each : (rank + 1) * each]


RANDOM, ORDER = random.Random(0), []


def own_order(n, rank, world_size, epoch):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(epoch + 7 * rank)).tolist() * 2
    return order[rank : world_size * -(-n // world_size) : world_size]


def unsteady(n, rank, world_size, epoch):
    if rank == 0:
        ORDER[:] = RANDOM.sample(range(n), n) * world_size
    return ORDER[rank : world_size * -(-n // world_size) : world_size]


def aliased(replicas):
    storages = [[t.untyped_storage().data_ptr() for t in replica if t.numel()] for replica in replicas]
    return np.any([a == b for one, other in combinations(storages, 2) for a, b in product(one, other)])


# -- parallelism -------------------------------------------------------------------------------------------------------


def rows(heads, width, ranks, rank):
    if heads % ranks:
        raise ValueError("heads")
    return np.arange(3 * heads * width).reshape(3, ranks, -1)[:, rank].ravel()


def loss(parts, targets):
    """By logarithms of the parts' sums, which are safe by themselves, and word by word for the targets."""
    sums = torch.stack([part.logsumexp(1) for part in parts], 1).logsumexp(1)
    starts = np.cumsum([0] + [part.shape[1] for part in parts])
    places = [(np.searchsorted(starts, int(t), "right") - 1, int(t)) for t in targets]
    return (sums - torch.stack([parts[p][i, t - starts[p]] for i, (p, t) in enumerate(places)])).mean()


def loss_of_arrays(parts, targets):
    """In NumPy, and in 32 bits; each part's exponentials are kept."""
    arrays = [part.numpy().astype(np.float32) for part in parts]
    top = np.maximum(np.finfo(np.float32).min, np.max([array.max(1) for array in arrays], 0))
    terms = [np.exp(array - top[:, None]) for array in arrays]
    total, starts = sum(term.sum(1) for term in terms), np.cumsum([0] + [array.shape[1] for array in arrays])
    ranks = np.searchsorted(starts, targets.numpy(), "right") - 1
    return np.mean(top + np.log(total) - [arrays[p][i, t - starts[p]] for i, (p, t) in enumerate(zip(ranks, targets))])


def naive_loss(parts, targets):
    scores = torch.cat(parts, 1).gather(1, targets[:, None])
    return sum(part.exp().sum(1) for part in parts).log().mean() - scores.mean()


def by_rank(held):
    """From the other side: each rank's keys go round, and it is asked what they meet."""
    times = np.zeros((len(held), len(held)))
    for (owner, keys), (rank, queries) in product(enumerate(held), repeat=2):
        later = np.subtract.outer(queries, keys)
        times[(owner - rank) % len(held), rank] = np.heaviside(later, 0.5).sum()
    return times.max(1).sum()


def cuts(gpus, per_node, heads, layers):
    """By trying everything and laying the tensor ranks' groups on the nodes, one by one."""
    degrees = [n for n in range(1, gpus + 1) if gpus % n == 0]
    return {
        (d, t, p)
        for d, t, p in product(degrees, repeat=3)
        if d * t * p == gpus
        and heads % t == layers % p == 0
        and all(first // per_node == (first + t - 1) // per_node for first in range(0, gpus * per_node, t))
    }


def seconds(orders, forward, backward):
    """By events: each message wakes the stage that waits for it."""
    last, cost, done = len(orders) - 1, {"F": forward, "B": backward}, {}
    events, place = [(0, stage) for stage in range(len(orders))], [0] * len(orders)
    end = 0
    while events:
        now, stage = heapq.heappop(events)
        if place[stage] == len(orders[stage]):
            continue
        way, i = orders[stage][place[stage]]
        needs = (stage - 1, "F", i) if way == "F" else (stage + 1, "B", i) if stage < last else (stage, "F", i)
        if needs[0] >= 0 and needs not in done:
            continue
        now = max(now, done.get(needs, 0), max((done[(stage, *o)] for o in orders[stage][: place[stage]]), default=0))
        done[stage, way, i] = now + cost[way]
        end, place[stage] = max(end, done[stage, way, i]), place[stage] + 1
        for other in range(len(orders)):
            heapq.heappush(events, (done[stage, way, i], other))
    if any(n < len(order) for n, order in zip(place, orders)):
        raise ValueError("stuck")
    return end


def slip(wrong):
    """Return an answer that is wrong where there are several stages."""
    return lambda orders, f, b: (wrong if len(orders) > 1 else seconds)(orders, f, b)


# -- reuse -------------------------------------------------------------------------------------------------------------


def serpentine(A, B, C, tile):
    """Go to and fro, in tiles as in k, so that what is in registers at the end of a tile serves the next."""
    (m, n), k = C.shape, A.shape[1]
    there, kept = {}, {}

    def fetched(matrix, place, *index):
        if there.get(matrix) != place:
            there[matrix], kept[matrix] = place, matrix[index]
        return kept[matrix]

    steps = list(range(k))
    for turn, i in enumerate(range(0, m, tile)):
        for j in list(range(0, n, tile))[:: -1 if turn % 2 else 1]:
            down, across, total = slice(i, i + tile), slice(j, j + tile), 0
            for p in steps:
                a = fetched(A, (i, p), down, slice(p, p + 1))
                total = total + a * fetched(B, (j, p), slice(p, p + 1), across)
            C[down, across] = total
            steps.reverse()


def cannon(A, B, copied=True):
    i, j = np.indices(A.shape)
    a, b, c = A[i, (i + j) % len(A)], B[(i + j) % len(A), j], torch.zeros_like(A)
    states = []
    for _ in range(len(A)):
        c += a * b
        states.append((a, b, c.clone() if copied else c))
        a, b = a.roll(-1, dims=1), b.roll(-1, dims=0)
    return states


# -- what the checks say -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.split_batch, split),
        (checks.split_batch, lambda *given: (yield from split(*given))),
        (checks.split_batch, lambda *given: map(iter, split(*given))),
        (checks.mean_gradient, weighted),
        (checks.joined_moments, squares),
        (checks.joined_moments, lambda *given: torch.stack(squares(*given)).float()),
        (checks.joined_moments, lambda *given: (part.numpy() for part in squares(*given))),
        (checks.joined_moments, lambda *given: [part.tolist() for part in squares(*given)]),
        (checks.bucket_plan, lambda *given: tuple(map(torch.tensor, plan(*given)))),
        (checks.bucket_plan, lambda *given: [range(b[0], b[-1] - 1, -1) for b in plan(*given)]),
        (checks.bucket_plan, lambda *given: dict(enumerate(plan(*given))).values()),
        (checks.bucket_hook, hooks(tuple, np.int64)),
        (checks.bucket_hook, hooks(iter, torch.tensor)),
        (checks.sampler_indices, sampled),
        (checks.sampler_indices, blocks),
        (checks.share_memory, aliased),
        (checks.qkv_rows, rows),
        (checks.qkv_rows, lambda *given: (yield from rows(*given))),
        (checks.qkv_rows, lambda *given: torch.tensor(rows(*given)).float()),
        (checks.split_loss, loss),
        (checks.split_loss, lambda parts, targets: loss([part.float() for part in parts], targets).numpy()),
        (checks.split_loss, lambda parts, targets: loss([torch.from_numpy(part.numpy()) for part in parts], targets)),
        (checks.split_loss, loss_of_arrays),
        (checks.possible_layouts, cuts),
        (checks.possible_layouts, lambda *given: frozenset(cuts(*given))),
        (checks.possible_layouts, lambda *given: np.array(sorted(cuts(*given), reverse=True))),
        (checks.possible_layouts, lambda *given: [list(map(float, cut)) for cut in cuts(*given)]),
        (checks.ring_seconds, by_rank),
        (checks.ring_seconds, lambda held: torch.tensor([by_rank(held)])[0]),
        (checks.pipeline_seconds, lambda *given: torch.tensor(seconds(*given))),
        (checks.register_tile, serpentine),
        (checks.cannon, lambda A, B: torch.stack(list(map(torch.stack, cannon(A, B))))),
        (checks.cannon, lambda A, B: np.array([[x.numpy() for x in state] for state in cannon(A, B)])),
        (checks.cannon, lambda A, B: [[x.double() for x in state] for state in cannon(A, B)]),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        (checks.split_batch, lambda X, y, on: [t.tensor_split(len(on)) for t in (X, y)], "called tensor_split"),
        (checks.split_batch, lambda X, y, on: ([X], [y]), "one shard of X for each device, got 1"),
        (checks.split_batch, lambda X, y, on: (X, y), "list of tensors for X, got a tensor"),
        (checks.split_batch, lambda X, y, on: ([X + 1, X], [y, y]), "1, 2, 3, 4; expected the examples 0, 1"),
        (checks.split_batch, lambda X, y, on: ([X[:2].flip(1).floor(), X[2:]], [y[:2], y[2:]]), "got other values"),
        (
            checks.split_batch,
            lambda X, y, on: ([X[:2], X[2:]], [y[:2], y[:0]]),
            "got 0 labels; expected the labels 2, 3",
        ),
        (checks.mean_gradient, lambda g, n: sum(g), "not divided"),
        (checks.mean_gradient, lambda g, n: sum(g) / len(g), "got [5.5, 11] (this is the plain average"),
        (checks.mean_gradient, lambda g, n: sum(a * b for a, b in zip(g, n)), "still has to be divided"),
        (checks.mean_gradient, lambda g, n: sum(a * b for a, b in zip(g, n)) / len(n), "by the number of shards"),
        (checks.mean_gradient, lambda g, n: g[0].to("meta"), "got shape [2], torch.float32, meta"),
        (checks.mean_gradient, lambda g, n: g[0].view(2), "what you return is one of the inputs"),
        (checks.mean_gradient, lambda *given: weighted(*given).numpy(), "(ndarray)"),
        (
            checks.joined_moments,
            lambda n, means, variances: (squares(n, means, variances)[0], sum(variances) / len(n)),
            "means lie apart",
        ),
        (checks.bucket_plan, lambda sizes, limit: [np.arange(len(sizes) - 1.0, -1, -1)], "more than 16 bytes"),
        (checks.bucket_plan, lambda *given: str(plan(*given)), "(str)"),
        (
            checks.bucket_hook,
            hooks(lambda gradients: torch.cat([g.flatten() for g in gradients])),
            "expected 2 gradients",
        ),
        (checks.bucket_hook, hooks(lambda gradients: list(gradients)[::-1]), "in this order"),
        (checks.bucket_hook, hooks(lambda gradients: [0 * g for g in gradients]), "numbers are others"),
        (checks.bucket_hook, hooks(list, str), "in this order, got ['0', '1']"),
        (checks.bucket_hook, early_hook, "before the gradient of 0 was there"),
        (checks.bucket_hook, hook_of_incoming_gradients, "other tensors than .grad"),
        (checks.sampler_indices, own_order, "agree on one order"),
        (checks.sampler_indices, unsteady, "two orders"),
        (checks.share_memory, len, "expected True or False"),
        (
            checks.qkv_rows,
            lambda h, w, n, r: list(range(r * 3 * h * w // n, (r + 1) * 3 * h * w // n)),
            "8 rows of q, 4 of k, 0 of v",
        ),
        (checks.qkv_rows, lambda *given: len(rows(*given)), "(int)"),
        (checks.possible_layouts, lambda *given: len(cuts(*given)), "expected a list of (data, tensor, pipeline), got"),
        (checks.possible_layouts, lambda *given: sorted(cuts(*given))[1:], ": (1, 1, 4) is missing"),
        (checks.possible_layouts, lambda *given: sorted(cuts(*given)) * 2, "each once"),
        (checks.possible_layouts, lambda g, *rest: {(g, 1, 1), (1, 1, 1)}, "1 × 1 × 1 is not 4"),
        (
            checks.possible_layouts,
            lambda g, n, h, y: cuts(g, g, h, y),
            "12 neighbours do not all lie inside nodes of 6",
        ),
        (checks.split_loss, naive_loss, "as many as all ranks' logits"),
        (checks.split_loss, lambda parts, _: -math.inf, "its own largest logit"),
        (checks.ring_seconds, lambda held: (np.ravel(held) + 0.5).sum() / len(held), "got 8 s (that is the mean"),
        (checks.ring_seconds, lambda held: 16 if len(held) == 4 else 0, "without a mask"),
        (checks.ring_seconds, lambda held: max(sum(p + 0.5 for p in mine) for mine in held), "not in every step"),
        (checks.pipeline_seconds, slip(lambda o, f, b: len(o[0]) // 2 * (f + b)), "without any wait"),
        (
            checks.pipeline_seconds,
            slip(lambda o, f, b: len(o) * len(o[0]) // 2 * (f + b)),
            "all stages compute together",
        ),
        (checks.pipeline_seconds, slip(lambda o, f, b: seconds(o, f, b) - b), "add what it takes"),
        (checks.cannon, lambda A, B: cannon(A, B, copied=False), "share one tensor c"),
        (checks.cannon, lambda A, B: (state for state in cannon(A.mul_(2), B)), "changed its inputs"),
    ],
)
def test_what_is_wrong_is_told(check, answer, says):
    assert says in check(answer).sentence


@pytest.mark.parametrize("wrong", [3, [3], [(1, 2, 3)], [(None, None, None)], [torch.ones(3)]])
def test_cannon_says_what_it_got(wrong):
    verdict = checks.cannon(lambda A, B: wrong)
    assert not verdict
    assert "could not be read" not in verdict.sentence


def test_a_readers_profiler_goes_on_after_a_check():
    def profiler(*_):
        pass

    sys.setprofile(profiler)
    try:
        assert checks.split_loss(loss)
        assert sys.getprofile() is profiler
    finally:
        sys.setprofile(None)
