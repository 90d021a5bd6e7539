"""SyncBatchNorm against torch's BatchNorm on the whole batch: forward, backward, running statistics; the lockstep."""

import copy
import threading
from functools import partial
from unittest.mock import Mock

import pytest
import torch
from torch import nn

import simgpu
from d2lmini.data_parallel.rank_threads import exchange, together
from d2lmini.data_parallel.sync_batch_norm import SyncBatchNorm

NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}


@pytest.fixture(autouse=True)
def gpus():
    simgpu.enable(4)


@pytest.mark.parametrize("kind", ["cpu", "sim"])
@pytest.mark.parametrize("options", [{}, {"momentum": None}, {"affine": False}, {"track_running_stats": False}])
@pytest.mark.parametrize(
    ("shape", "sizes"),
    [((7, 3), (4, 3)), ((5, 3, 2), (2, 2, 1)), ((6, 3, 4, 4), (3, 1, 1, 1)), ((2, 3, 2, 2, 2), (1, 1))],
)
def test_it_is_batch_norm_on_the_whole_batch(shape, sizes, options, kind):
    torch.manual_seed(0)
    norm = NORMS[len(shape)](3, **options).double()
    if norm.affine:
        nn.init.normal_(norm.weight)
        nn.init.normal_(norm.bias)
    devices = [torch.device("cpu") if kind == "cpu" else torch.device("sim", i) for i in range(len(sizes))]
    parts = [SyncBatchNorm.convert(copy.deepcopy(norm)).to(device) for device in devices]
    for _ in range(2):  # twice, for the running statistics
        X, G = torch.randn(shape, dtype=torch.float64) * 3 + 5, torch.randn(shape, dtype=torch.float64)
        whole = X.clone().requires_grad_()
        shards = [x.detach().to(d, copy=True).requires_grad_() for x, d in zip(X.split(sizes), devices, strict=True)]
        expected = norm(whole)
        expected.backward(G)
        found = together([partial(part, x) for part, x in zip(parts, shards, strict=True)])
        torch.autograd.backward(found, [g.to(d) for g, d in zip(G.split(sizes), devices, strict=True)])
        torch.testing.assert_close(torch.cat([y.cpu() for y in found]), expected)
        torch.testing.assert_close(torch.cat([x.grad.cpu() for x in shards]), whole.grad)
    for name, p in norm.named_parameters():
        torch.testing.assert_close(sum(part.get_parameter(name).grad.cpu() for part in parts), p.grad)
    for part in parts:
        for mine, theirs in zip(part.buffers(), norm.buffers(), strict=True):
            torch.testing.assert_close(mine.cpu(), theirs)
    x = X[:1]
    if norm.track_running_stats:
        torch.testing.assert_close(parts[1].eval()(x.to(devices[1])).cpu(), norm.eval()(x))


def test_half_precision_is_added_up_in_single():
    torch.manual_seed(0)
    X = torch.randn(600, 2) + 4
    expected = nn.BatchNorm1d(2)(X.bfloat16().float())
    parts = together([partial(SyncBatchNorm(2), x) for x in X.bfloat16().split([400, 200])])
    assert parts[0].dtype == torch.bfloat16
    torch.testing.assert_close(torch.cat(parts).float(), expected, rtol=0.01, atol=0.01)


def test_conversion_keeps_parameters_and_finds_every_layer():
    block = nn.Sequential(nn.Linear(2, 3), nn.BatchNorm1d(3, momentum=0.3, eps=1e-3))
    model = nn.Sequential(nn.Conv2d(1, 2, 1), nn.BatchNorm2d(2), block).eval()
    before = list(model.state_dict().items())
    converted = SyncBatchNorm.convert(model)
    assert [type(m).__name__ for m in converted.modules()].count("SyncBatchNorm") == 2
    assert [(n, v.data_ptr()) for n, v in converted.state_dict().items()] == [(n, v.data_ptr()) for n, v in before]
    assert (converted[2][1].momentum, converted[2][1].eps, converted[1].training) == (0.3, 1e-3, False)
    assert SyncBatchNorm.convert(converted)[1] is converted[1]


@pytest.mark.parametrize(("shape", "word"), [((1, 2), "one value"), ((4, 3), "expected")])
def test_what_it_refuses(shape, word):
    with pytest.raises(ValueError, match=word):
        SyncBatchNorm(2)(torch.ones(shape))


def test_turns_are_taken_in_order_and_values_are_exchanged():
    log = []

    def work(rank):
        found = []
        for step in range(3):
            log.append((step, rank))
            found.append(exchange(10 * step + rank))
        return found

    expected = [[10 * step + rank for rank in range(3)] for step in range(3)]
    assert together([partial(work, rank) for rank in range(3)]) == [expected] * 3
    assert log == [(step, rank) for step in range(3) for rank in range(3)]
    assert together([partial(work, 0)]) == [[[0], [10], [20]]]
    assert exchange("alone") == ["alone"]


@pytest.fixture
def before():
    """The threads that there were: one of another file's may end meanwhile; no other may be left."""
    before = set(threading.enumerate())
    yield before
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize("failing", [0, 1, 2])
def test_an_error_in_one_ends_all(before, failing):
    def work(rank):
        exchange(rank)
        if rank == failing:
            raise KeyError(f"rank {rank}")
        exchange(rank)

    with pytest.raises(KeyError, match=f"rank {failing}"):
        together([partial(work, rank) for rank in range(3)])


@pytest.mark.parametrize(
    ("calls", "told"),
    [
        ((1, 0, 1), "rank 1 has returned, and rank 0 waits"),
        ((0, 1, 1), "rank 0 has returned, and rank 1 waits"),
        ((3, 3, 2), "rank 2 has returned, and rank 0 waits"),
        ((2, 2, 3), "rank 0 has returned, and rank 2 waits"),
        ((0, 0, 5), "rank 0 has returned, and rank 2 waits"),
    ],
)
def test_a_rank_that_exchanges_less_often_is_named(before, calls, told):
    done = []

    def work(rank):
        for _ in range(calls[rank]):
            assert exchange(rank) == [0, 1, 2]  # never what a rank gave in an earlier round
        done.append(rank)

    with pytest.raises(RuntimeError, match=f"^{told}"):
        together([partial(work, rank) for rank in range(3)])
    assert done == [rank for rank in done if calls[rank] == min(calls)]


def test_an_interrupt_lets_all_go(monkeypatch, before):
    join, go = threading.Thread.join, threading.Event()

    def work(rank):
        exchange(rank)
        go.wait(30)
        exchange(rank)

    monkeypatch.setattr(threading.Thread, "join", Mock(side_effect=KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        together([partial(work, rank) for rank in range(3)])
    go.set()
    for thread in set(threading.enumerate()) - before:
        join(thread, 30)
