"""The checks of code for every device and rank: right answers of other kinds pass, and wrong ones are told why."""

import re

import pytest
import torch
import torch.distributed as dist

from d2lmini import checks, sim


@pytest.fixture(autouse=True)
def gpus():
    sim.enable(2)


def mask_by_infinities(tokens):
    length = tokens.shape[1]
    return torch.full((length, length), -torch.inf, device=tokens.device).triu(1) == 0


def mask_by_new_ones(tokens):
    return tokens.new_ones(tokens.shape[1], tokens.shape[1], dtype=torch.bool).tril()


def one_wait_by_a_sum(losses):
    return float(sum(losses)) / len(losses)


def one_wait_by_a_list(losses):
    return sum(torch.stack(losses).tolist()) / len(losses)


def mean_by_two_sums(values):
    total, count = values.sum(), torch.tensor(float(len(values)), device=values.device)
    dist.all_reduce(total)
    dist.all_reduce(count)
    return (total / count).item()


def step_by_hand(values, loss, device):
    weight = torch.tensor(values, device=device).requires_grad_()
    (gradient,) = torch.autograd.grad(loss(weight), weight)
    return weight.detach() - 0.1 * gradient


def step_of_a_parameter(values, loss, device):
    weight = torch.nn.Parameter(torch.tensor(values).to(device))
    optimizer = torch.optim.SGD([weight], lr=0.1)
    loss(weight).backward()
    optimizer.step()
    return weight.data


@pytest.mark.parametrize(("check", "answer"), [
    (checks.causal_mask, mask_by_infinities), (checks.causal_mask, mask_by_new_ones),
    (checks.one_wait, one_wait_by_a_sum), (checks.one_wait, one_wait_by_a_list),
    (checks.joined_mean, mean_by_two_sums),
    (checks.placed_step, step_by_hand), (checks.placed_step, step_of_a_parameter),
])  # fmt: skip
def test_other_right_answers_pass(check, answer):
    assert check(answer)


def moved_after(values, loss, device):
    weight = torch.tensor(values, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    moved = weight.to(device)
    loss(moved).backward()
    optimizer.step()
    return moved


@pytest.mark.parametrize(("check", "answer", "says"), [
    (checks.placed_step, moved_after, "sim:1.*did not change"),
    (checks.placed_step, lambda values, loss, device: torch.tensor(values), "did not change"),
    (checks.placed_step, lambda values, loss, device: values, "expected a tensor"),
    (checks.placed_step, lambda values, loss, device: step_by_hand(values, loss, "cpu"), "is on cpu"),
    (checks.placed_step, lambda values, loss, device: 0.8 * torch.tensor(values, device=device), r"\*\*1.*expected"),
    (checks.causal_mask, lambda tokens: mask_by_new_ones(tokens).cpu(), "on meta"),
    (checks.one_wait, lambda losses: sum(losses) / len(losses), "number of Python"),
    (checks.joined_mean, lambda values: values.mean(), "rank"),
])  # fmt: skip
def test_what_is_wrong_is_told(check, answer, says):
    verdict = check(answer)
    assert not verdict
    assert re.search(says, verdict.sentence), verdict.sentence
