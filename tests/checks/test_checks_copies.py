"""The checks of the exercises on copies: right answers of other kinds pass, wrong ones are told what is wrong."""

import functools
import itertools

import numpy as np
import pytest
import torch

import simgpu
from d2lmini import checks
from d2lmini.measuring import copy_overlap, line_fit


def packed(tensors, device):
    flat = torch.empty(sum(t.numel() for t in tensors), dtype=tensors[0].dtype).pin_memory()
    torch.cat([t.reshape(-1) for t in tensors], out=flat)
    there, at, result = flat.to(device, non_blocking=True), 0, []
    for t in tensors:
        result.append(there[at : at + t.numel()].reshape(t.shape))
        at += t.numel()
    return tuple(result)


def packed_when_asked(tensors, device):
    yield from packed(tensors, device)


def buffered(batches, device):
    """Two buffers by turns; the event that frees one is recorded when the caller asks for the next batch."""
    copying, main = torch.sim.Stream(device), torch.sim.current_stream(device)
    buffers = [torch.empty_like(batch, device=device) for batch in batches[:2]]
    free, upcoming = [torch.sim.Event(), torch.sim.Event()], None
    for i, batch in enumerate(batches):
        copying.wait_event(free[i % 2])
        with torch.sim.stream(copying):
            there = buffers[i % 2][: len(batch)].copy_(batch, non_blocking=True)
            ready, upcoming = upcoming, (there, copying.record_event(), free[i % 2])
        if ready is not None:
            main.wait_event(ready[1])
            yield ready[0]
            ready[2].record(main)
    if upcoming is not None:
        main.wait_event(upcoming[1])
        yield upcoming[0]


def queued(batches, device, ahead=1, recorded=False):
    """A queue of `ahead` batches; either the copying stream waits, or the allocator is told who uses a batch."""
    copying, main, waiting = torch.sim.Stream(device), torch.sim.current_stream(device), []

    def hand_out():
        batch, arrived = waiting.pop(0)
        main.wait_event(arrived)
        if recorded:
            batch.record_stream(main)
        return batch

    for batch in batches:
        if not recorded:
            copying.wait_stream(main)
        with torch.sim.stream(copying):
            waiting.append((batch.to(device, non_blocking=True), copying.record_event()))
        if len(waiting) > ahead:
            yield hand_out()
    while waiting:
        yield hand_out()


def waiting(batches, device):
    for batch in batches:
        yield batch.to(device)


def rushed(batches, device):
    copying = torch.sim.Stream(device)
    for batch in batches:
        with torch.sim.stream(copying):
            moved = batch.to(device, non_blocking=True)
        yield moved


def weighted(sizes, seconds):
    slope, alpha = np.polyfit(sizes, seconds, 1, w=1 / np.array(seconds))
    return torch.tensor(alpha), 1 / slope


def packages(sizes, seconds):
    line = line_fit.fit(sizes, seconds)
    return [line.alpha, line.beta]


def middles(sizes, seconds):
    n, t = map(np.array, (sizes, seconds))
    i, j = np.triu_indices(len(n), 1)
    slope = np.median((t[j] - t[i]) / (n[j] - n[i]))
    return np.median(t - slope * n), 1 / slope


def single_precision(sizes, seconds):
    """Solve in torch's own type, float32, with nothing scaled."""
    n, t = torch.tensor(sizes, dtype=torch.float32), torch.tensor(seconds)
    rows = torch.stack([1 / t, n / t], dim=1)
    alpha, slope = torch.linalg.lstsq(rows, torch.ones(len(n), 1)).solution.flatten()
    return alpha, 1 / slope


@pytest.mark.parametrize(
    ("check", "answer"),
    [
        (checks.pack, packed_when_asked),
        *(
            (checks.prefetch, answer)
            for answer in (
                buffered,
                queued,
                functools.partial(queued, ahead=2),
                functools.partial(queued, recorded=True),
                functools.partial(queued, ahead=2, recorded=True),
            )
        ),
        *(
            (checks.fit_line, answer)
            for answer in (
                weighted,
                packages,
                middles,
                single_precision,
                lambda n, t: np.array(packages(n, t)),
                lambda n, t: torch.tensor(packages(n, t), dtype=torch.float64),
            )
        ),
    ],
)
def test_other_right_answers_pass(check, answer):
    assert check(answer)


@pytest.mark.parametrize(
    ("check", "answer", "message"),
    [
        (
            checks.pack,
            lambda tensors, device: [t.to(device) for t in tensors],
            "1 copy, from the host to sim:0, counted 3",
        ),
        (checks.pack, lambda tensors, device: tensors, "tensor 0 is not on sim:0, you returned cpu"),
        (checks.pack, lambda tensors, device: [7] * len(tensors), "tensor 0 is not on sim:0, you returned 7"),
        (checks.pack, lambda tensors, device: packed(tensors, device)[:1], "expected a list of 3 tensors, got "),
        (
            checks.pack,
            lambda tensors, device: [t.view(-1) for t in packed(tensors, device)],
            "tensor 0 has shape [6], torch.float32; expected [2, 3], torch.float32",
        ),
        (
            checks.pack,
            lambda tensors, device: [t + 1 for t in packed(tensors, device)],
            "tensor 0 should be [[1, 2, 3], [4, 5, 6]], it is [[2, 3, 4], [5, 6, 7]]",
        ),
        (
            checks.pack,
            lambda tensors, device: packed([*tensors, torch.zeros(5)], device)[:-1],
            "the tensors hold 80 bytes, but 100 were copied",
        ),
        (checks.prefetch, waiting, "1 batch: the host waited 1 time; non_blocking=True"),
        (
            checks.prefetch,
            lambda _, device: itertools.repeat(torch.ones(2, 1024, device=device)),
            "0 to be yielded, got 1",
        ),
        (checks.prefetch, lambda batches, device: copy_overlap.prefetch(batches, "sim:0"), "3 batches to sim:1, while"),
        (checks.pack, lambda tensors, device: itertools.repeat(tensors[0]), "expected a list of 3 tensors, got "),
        (checks.prefetch, rushed, "1 batch: the work on batch 0 began before"),
        (checks.prefetch, lambda batches, device: iter(batches), "1 batch: batch 0 should be on sim:0, got a tensor"),
        (checks.prefetch, lambda batches, device: copy_overlap.prefetch(batches[::-1], device), "in place 0 is not"),
        (checks.prefetch, lambda batches, device: queued(batches, device, ahead=3), "4 copies had been asked for"),
        (checks.fit_line, lambda n, t: packages(n, t)[::-1], "expected alpha = 1e-05 s within 0.10%, got 1e+10"),
        (checks.fit_line, lambda n, t: packages(n, t)[0], "expected the pair (alpha, beta), got 1e-05"),
        (checks.fit_line, lambda n, t: (None, packages(n, t)[1]), "pair (alpha, beta), got [None, 1e+10] (tuple)"),
        (checks.fit_line, lambda n, t: (packages(n, t)[0], float("nan")), "beta = 1e+10 bytes/s within 0.10%, got nan"),
    ],
)
def test_what_is_wrong_is_told(check, answer, message):
    assert message in check(answer).sentence


@pytest.mark.parametrize("options", [{"machine": "8xH200"}, {"gpus": 1}, {"gpus": 3, "clock": False}])
def test_the_readers_machine_and_clock_stay_as_they_are(options):
    simgpu.enable(**options)
    count, clocked = torch.sim.device_count(), simgpu.has_clock()
    kept = torch.ones(3, device=f"sim:{count - 1}")
    before = simgpu.now() if clocked and count > 1 else None
    assert checks.prefetch(copy_overlap.prefetch)
    assert checks.pack(packed)
    assert kept.sum().item() == 3
    if count > 1:
        assert (torch.sim.device_count(), simgpu.has_clock()) == (count, clocked)
    if before is not None:
        assert simgpu.now() - before < 1e-4  # what reading `kept` took
