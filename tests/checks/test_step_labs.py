"""Labs on the cost of a step or a product: right answers of other kinds than the book's pass, better ones too."""

from bisect import bisect_left
from itertools import product

import pytest
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from d2lmini import checks


def by_einsum(X, W1, W2):
    hidden = F.relu(torch.einsum("bd,ndh->nbh", X, W1))
    return torch.einsum("nbh,nhc->bc", hidden, W2) / len(W1)


def by_vmap(X, W1, W2):
    return torch.func.vmap(lambda a, b: F.relu(X @ a) @ b)(W1, W2).mean(0)


def one_wide_network(X, W1, W2):
    networks, inputs, hidden = W1.shape
    wide = W1.transpose(0, 1).reshape(inputs, networks * hidden)
    return F.relu(X @ wide) @ W2.flatten(0, 1) / networks


@pytest.mark.parametrize("answer", [by_einsum, by_vmap, one_wide_network])
def test_ensemble_passes_whatever_makes_the_kernels_few(answer):
    assert checks.ensemble(answer)


def recomputed(function, *inputs):
    return checkpoint(function, *inputs, use_reentrant=False)


def embedded(model, tokens):
    return model.words(tokens) + model.places(torch.arange(tokens.shape[1], device=tokens.device))


def two_layers_at_a_time(model, tokens):
    x = embedded(model, tokens)
    for first in range(0, len(model.layers), 2):
        x = recomputed(model.layers[first : first + 2], x)
    parts = zip(x.flatten(0, 1).split(500), tokens.flatten().split(500))
    losses = [recomputed(lambda a, b: F.cross_entropy(model.scores(model.norm(a)), b) * len(b), *p) for p in parts]
    return torch.stack(losses).sum() / tokens.numel()


class LossWithGradient(torch.autograd.Function):
    """The gradients of the last layer are computed in forward, a text at a time, and scaled in backward."""

    @staticmethod
    def forward(ctx, x, weight, tokens):
        total, grads, grad_weight = 0, [], torch.zeros_like(weight)
        for a, b in zip(x.split(1), tokens.split(1)):
            with torch.enable_grad():
                a, w = a.detach().requires_grad_(), weight.detach().requires_grad_()
                loss = F.cross_entropy(F.linear(a, w).flatten(0, 1), b.flatten(), reduction="sum") / tokens.numel()
            grad, more = torch.autograd.grad(loss, (a, w))
            total = total + loss.detach()
            grads.append(grad)
            grad_weight += more
        ctx.save_for_backward(torch.cat(grads), grad_weight)
        return total

    @staticmethod
    def backward(ctx, grad):
        return *(g * grad for g in ctx.saved_tensors), None


def gradients_in_forward(model, tokens):
    x = embedded(model, tokens)
    for layer in model.layers:
        x = recomputed(layer, x)
    return LossWithGradient.apply(model.norm(x), model.scores.weight, tokens)


@pytest.mark.parametrize("answer", [two_layers_at_a_time, gradients_in_forward])
def test_small_peak_passes_whatever_is_recomputed(answer):
    assert checks.small_peak(answer)


def views(A, B, C):
    (m, n), k = C.shape, A.shape[1]
    for top, left in product(range(0, m, 9), range(0, n, 16)):
        tile = C[top : top + 9, left : left + 16]
        for p in range(k):
            column, row = A[top : top + 9, p : p + 1], B[p : p + 1, left : left + 16]
            for i in range(tile.shape[0]):
                a = column[i, 0]
                for j in range(tile.shape[1]):
                    tile[i, j] = tile[i, j] + row[0, j] * a


def panels(A, B, C):
    (m, n), k = C.shape, A.shape[1]
    for left, top, p in product(range(0, n, 16), range(0, m, 8), range(k)):
        for i, j in product(range(top, min(top + 8, m)), range(left, min(left + 16, n))):
            C[i, j] += A[i, p] * B[p, j]


@pytest.mark.parametrize("answer", [views, panels])
def test_few_words_passes_whatever_moves_little(answer):
    assert checks.few_words(answer)


def by_bisection(rate_of, target, most):
    gpus = next(n for n in (1, 2, 4, 8) if rate_of(n, most) >= target)
    sizes = [256 * 2**i for i in range(8) if 256 * 2**i <= most]
    return torch.tensor([gpus, sizes[bisect_left(sizes[:-1], target, key=lambda images: rate_of(gpus, images))]])


def by_halves(rate_of, target, most):
    gpus, images = 8.0, float(most)  # as divisions give them
    while gpus > 1 and rate_of(gpus / 2, images) >= target:
        gpus /= 2
    while images > 256 and rate_of(gpus, images / 2) >= target:
        images /= 2
    return gpus, images


@pytest.mark.parametrize("answer", [by_halves, by_bisection])
def test_few_gpus_passes_with_another_search(answer):
    assert checks.few_gpus(answer)


def from_the_most(step, message, tokens, least, counts):
    for gpus in sorted(counts, reverse=True):
        forward, backward, update = step(tokens / gpus)
        wires = backward / 4
        for layer in range(4):  # the queue itself, not its formula
            wires = max(wires, backward * (layer + 1) / 4) + message(gpus) / 4
        if sum(step(tokens)) >= least * gpus * (forward + wires + update):
            return torch.tensor(gpus)


def by_share_of_step(step, message, tokens, least, counts):
    kept = []
    for gpus in counts:
        parts, late = step(tokens // gpus), message(gpus)
        late = max(late / 4, late - parts[1] * 0.75)
        kept.append(gpus * (sum(parts) + late) <= sum(step(tokens)) / least)
    return float(counts[sum(kept) - 1])


@pytest.mark.parametrize("answer", [by_share_of_step, from_the_most])  # first the float, before a count is cached
def test_gpus_worth_passes_with_another_prediction(answer):
    assert checks.gpus_worth(answer)
