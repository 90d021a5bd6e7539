"""The checks of code for every device and rank: right answers of other kinds pass, and wrong ones are told why."""

import contextlib
import re

import pytest
import torch
import torch.distributed as dist

import simgpu
from d2lmini import checks
from d2lmini.checks import mechanism
from d2lmini.measuring import copy_overlap


@pytest.fixture(autouse=True)
def gpus():
    simgpu.enable(2)


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


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.causal_mask, mask_by_infinities),
        (checks.causal_mask, mask_by_new_ones),
        (checks.one_wait, one_wait_by_a_sum),
        (checks.one_wait, one_wait_by_a_list),
        (checks.joined_mean, mean_by_two_sums),
        (checks.placed_step, step_by_hand),
        (checks.placed_step, step_of_a_parameter),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)


def moved_by_hand(batch, device):
    if isinstance(batch, torch.Tensor):
        return batch.to(device)
    if isinstance(batch, dict):
        return {name: moved_by_hand(item, device) for name, item in batch.items()}
    if isinstance(batch, list | tuple):
        return getattr(type(batch), "_make", type(batch))([moved_by_hand(item, device) for item in batch])
    return batch


def packed(tensors, device):
    flat = torch.cat([tensor.flatten() for tensor in tensors]).to(device)
    return [piece.view(t.shape) for piece, t in zip(flat.split([t.numel() for t in tensors]), tensors)]


ON_GPUS = [
    (checks.move, moved_by_hand),
    (checks.pack, packed),
    (checks.prefetch, copy_overlap.prefetch),
    (checks.product_norms, lambda matrices: torch.stack([(m @ m).norm() for m in matrices])),
    (checks.one_wait, one_wait_by_a_list),
    (checks.joined_mean, mean_by_two_sums),
    (checks.placed_step, step_by_hand),
]


@pytest.mark.parametrize("options", [{"shapes_only": True}, {"gpus": 1, "clock": False}, None])
@pytest.mark.parametrize(("check", "answer"), ON_GPUS)
def test_gpus_that_a_check_can_not_use_are_replaced(check, answer, options):
    simgpu.disable() if options is None else simgpu.enable(**options)
    assert check(answer)


@pytest.mark.parametrize(
    ("needed", "options", "stays"),
    [
        ({}, {"gpus": 3}, True),
        ({}, {"gpus": 3, "clock": False}, False),
        ({"clock": False}, {"clock": False}, True),
        ({}, {"gpus": 1}, False),
        ({"count": 1}, {"gpus": 1}, True),
        ({"count": 1}, {"gpus": 1, "clock": False}, False),
        ({"clock": False}, {"gpus": 3, "shapes_only": True}, False),
    ],
)
def test_gpus_that_a_check_can_use_stay(needed, options, stays):
    simgpu.enable(gpu="T4", **options)
    mechanism.need_gpus(**needed)
    assert (simgpu.machine().gpu.name == "T4") == stays
    assert simgpu.has_numbers()


def test_what_is_in_the_way_of_new_gpus_is_told():
    simgpu.enable(shapes_only=True)
    kept = torch.ones(3, 5, device="sim:1")
    told = checks.one_wait(one_wait_by_a_list).sentence
    assert re.search(r"shape \(3, 5\): delete", told), told
    del kept


@contextlib.contextmanager
def default_device():
    torch.set_default_device("sim:1")
    try:
        yield
    finally:
        torch.set_default_device(None)  # "cpu" would stay as a mode, through which every call of torch goes twice


@contextlib.contextmanager
def default_double():
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("setting", [default_device, default_double, torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.placed_step, step_of_a_parameter),
        (checks.causal_mask, mask_by_infinities),
        (checks.pack, packed),
        (checks.joined_mean, mean_by_two_sums),
    ],
)
def test_what_the_reader_has_set_changes_no_verdict(check, answer, setting):
    with setting():
        before = torch.get_default_device(), torch.get_default_dtype(), torch.is_grad_enabled()
        assert check(answer)
        assert (torch.get_default_device(), torch.get_default_dtype(), torch.is_grad_enabled()) == before


def moved_after(values, loss, device):
    weight = torch.tensor(values, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=0.1)
    moved = weight.to(device)
    loss(moved).backward()
    optimizer.step()
    return moved


@pytest.mark.parametrize(
    ("check", "answer", "says"),
    [
        (checks.placed_step, moved_after, "sim:1.*did not change"),
        (checks.placed_step, lambda values, loss, device: torch.tensor(values), "did not change"),
        (checks.placed_step, lambda values, loss, device: values, "expected a tensor"),
        (checks.placed_step, lambda values, loss, device: step_by_hand(values, loss, "cpu"), "is on cpu"),
        (
            checks.placed_step,
            lambda values, loss, device: 0.8 * torch.tensor(values, device=device),
            r"\*\*1.*expected",
        ),
        (checks.causal_mask, lambda tokens: mask_by_new_ones(tokens).cpu(), "on meta"),
        (
            checks.placed_step,
            lambda values, loss, device: step_by_hand(values, loss, "cpu").to(device),
            "computed on cpu",
        ),
        (checks.causal_mask, lambda tokens: mask_by_new_ones(tokens).to("sim:0"), "on cpu: the mask is on sim:0"),
        (checks.causal_mask, lambda tokens: mask_by_new_ones(tokens).int(), r"bool tensor.*\(torch.int32\)"),
        (checks.causal_mask, lambda tokens: tokens.tolist() if tokens.is_cpu else [], r"bool tensor.*\(list\)"),
        (checks.one_wait, lambda losses: sum(losses) / len(losses), "number of Python"),
        (checks.joined_mean, lambda values: values.mean(), "rank"),
    ],
)
def test_what_is_wrong_is_told(check, answer, says):
    verdict = check(answer)
    assert not verdict
    assert re.search(says, verdict.sentence), verdict.sentence
