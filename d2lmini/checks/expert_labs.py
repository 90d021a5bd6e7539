"""The check of the exercise on experts: the loss that keeps a router balanced, for the best k experts of a token."""

import torch

from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many, number, typed, usual_slip

CASES = ((4, 2, 1), (6, 4, 2), (1, 3, 1), (9, 8, 3), (5, 1, 1), (7, 4, 4))  # tokens, experts, experts of a token


@check
def balance_loss(function):
    """``function(probability, k)``: E Σ fₑ Pₑ, where each token goes to its k most probable experts."""
    drawn = torch.Generator().manual_seed(3)
    for tokens, experts, k in CASES:
        probability = (2 * torch.randn(tokens, experts, generator=drawn)).softmax(-1)
        if tokens == 1:
            probability = probability.sort(descending=True).values  # nobody chooses the last experts
        given = f"{many(tokens, 'token')}, {many(experts, 'expert')}, k = {k}"
        p = probability.clone().requires_grad_()
        loss = attempt(function, p, k, given=given)
        got = number(loss.detach().squeeze() if isinstance(loss, torch.Tensor) else loss)
        if got is None:
            raise Wrong(f"{given}: expected one number, got {typed(loss)}")
        want, share = _loss(probability, k)
        if not abs(got - want) < 1e-4:
            slip = usual_slip(torch.tensor(float(got)), _slips(probability, k))
            raise Wrong(f"{given}: expected the loss {want:.4f}, got {got:.4f}{slip}")
        _must_have_gradient(loss, p, experts * share / tokens, given)
    return "1 when choices are spread evenly; the gradient pushes down the fullest experts"


def _must_have_gradient(loss, p, want, given):
    if not isinstance(loss, torch.Tensor) or not loss.requires_grad:
        raise Wrong(f"{given}: the loss is right, but no gradient flows back: the mean probability must stay a tensor")
    (found,) = torch.autograd.grad(loss.sum(), p, allow_unused=True)
    if found is None or not torch.allclose(found, want.expand_as(p), atol=1e-5):
        first = "none" if found is None else brief(found[0])
        raise Wrong(f"{given}: the first token's gradient should be {brief(want)}, it is {first}")


def _loss(probability, k):
    tokens, experts = probability.shape
    share = probability.topk(k).indices.flatten().bincount(minlength=experts) / (tokens * k)
    return experts * float(share @ probability.mean(0)), share


def _slips(probability, k):
    (want, share), mean, experts = _loss(probability, k), probability.mean(0), probability.shape[1]
    return (
        ("that is the mean probability squared: the share counts choices", torch.tensor(experts * float(mean @ mean))),
        ("that is the square of the share, which has no gradient", torch.tensor(experts * float(share @ share))),
        ("a token makes k choices: divide the counts by all choices", torch.tensor(want * k)),
        ("the number of experts is missing as a factor", torch.tensor(want / experts)),
        ("only the most probable expert of each token was counted", torch.tensor(_loss(probability, 1)[0])),
    )
