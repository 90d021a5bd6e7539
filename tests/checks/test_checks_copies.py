"""The checks of the exercises on copies: right answers of other kinds pass, wrong ones are told what is wrong."""

import numpy as np
import pytest
import torch

from d2lmini import checks, sim
from d2lmini.measuring import copy_overlap, line_fit


def told(check, answer, capsys):
    verdict = check(answer)
    printed = capsys.readouterr().out
    assert printed.startswith("✓" if verdict else "✗")
    assert printed.count("\n") == 1
    return printed


def packed(tensors, device):
    flat = torch.empty(sum(t.numel() for t in tensors)).pin_memory()
    torch.cat([t.reshape(-1) for t in tensors], out=flat)
    there, at, result = flat.to(device, non_blocking=True), 0, []
    for t in tensors:
        result.append(there[at : at + t.numel()].reshape(t.shape))
        at += t.numel()
    return tuple(result)


def test_packing_in_a_pinned_buffer_is_right(capsys):
    assert told(checks.pack, packed, capsys).startswith("✓ pack: every tensor arrived")


@pytest.mark.parametrize(("answer", "message"), [
    (lambda tensors, device: [t.to(device) for t in tensors], "expected 1 copy, from the host to sim:0, counted 3"),
    (lambda tensors, device: tensors, "tensor 0 is not on sim:0, you returned cpu"),
    (lambda tensors, device: 7, "expected a list of 3 tensors, got 7"),
    (lambda tensors, device: [7] * len(tensors), "tensor 0 is not on sim:0, you returned 7"),
    (lambda tensors, device: packed(tensors, device)[:1], "expected a list of 3 tensors, got "),
    (lambda tensors, device: [t.view(-1) for t in packed(tensors, device)],
     "tensor 0 has shape [6], torch.float32; expected [2, 3], torch.float32"),
    (lambda tensors, device: [t + 1 for t in packed(tensors, device)],
     "tensor 0 should hold [[1, 2, 3], [4, 5, 6]], it holds [[2, 3, 4], [5, 6, 7]]"),
    (lambda tensors, device: packed([*tensors, torch.zeros(5)], device)[:-1],
     "the tensors hold 80 bytes, but 100 were copied"),
])  # fmt: skip
def test_pack_says_what_is_wrong(answer, message, capsys):
    assert message in told(checks.pack, answer, capsys)


def waiting(batches, device):
    for batch in batches:
        yield batch.to(device)


def rushed(batches, device):
    copying = torch.sim.Stream(device)
    for batch in batches:
        with torch.sim.stream(copying):
            moved = batch.to(device, non_blocking=True)
        yield moved


@pytest.mark.parametrize(("answer", "message"), [
    (waiting, "1 batch: the host waited 1 time; non_blocking=True"),
    (rushed, "1 batch: the work on batch 0 began before its copy had ended"),
    (lambda batches, device: iter(batches), "batch 0 should be on sim:0, got a tensor of shape [512, 256]"),
    (lambda batches, device: copy_overlap.prefetch(batches[:-1], device), "1 batch: expected 1 to be yielded, got 0"),
    (lambda batches, device: copy_overlap.prefetch(batches[::-1], device), "what came in place 0 is not batch 0"),
    (lambda batches, device: None, "your code raised TypeError"),
])  # fmt: skip
def test_prefetch_says_what_is_wrong(answer, message, capsys):
    assert message in told(checks.prefetch, answer, capsys)


@pytest.mark.parametrize("options", [{"machine": "8xH200"}, {"gpus": 1}, {"gpus": 3, "clock": False}])
def test_the_readers_machine_and_clock_stay_as_they_are(options, capsys):
    sim.enable(**options)
    count, clocked = torch.sim.device_count(), sim.has_clock()
    kept = torch.ones(3, device=f"sim:{count - 1}")
    before = sim.now() if clocked and count > 1 else None
    assert told(checks.prefetch, copy_overlap.prefetch, capsys)[0] == "✓"
    assert told(checks.pack, packed, capsys)[0] == "✓"
    assert kept.sum().item() == 3
    if count > 1:
        assert (torch.sim.device_count(), sim.has_clock()) == (count, clocked)
    if before is not None:
        assert sim.now() - before < 1e-4  # what reading `kept` took


def weighted(sizes, seconds):
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds))
    return torch.tensor(alpha), 1 / slope


def packages(sizes, seconds):
    line = line_fit.fit(sizes, seconds)
    return [line.alpha, line.beta]


@pytest.mark.parametrize("answer", [weighted, packages])
def test_other_solvers_are_right(answer, capsys):
    assert told(checks.fit_line, answer, capsys).startswith("✓ fit_line: alpha and beta are found")


@pytest.mark.parametrize(("answer", "message"), [
    (lambda n, t: packages(n, t)[::-1], "expected alpha = 1e-05 s within 0.01%, got 1e+10"),
    (lambda n, t: packages(n, t)[0], "expected the pair (alpha, beta), got 1e-05"),
    (lambda n, t: (packages(n, t)[0], 5), "expected beta = 1e+10 bytes/s within 0.01%, got 5"),
    (lambda n, t: (packages(n, t)[0], float("nan")), "expected beta = 1e+10 bytes/s within 0.01%, got nan"),
])  # fmt: skip
def test_fit_line_says_what_is_wrong(answer, message, capsys):
    assert message in told(checks.fit_line, answer, capsys)
