"""The trainer with ``overlap=True``: the same bits as without, sent earlier, in less simulated time where it can be."""

from functools import partial

import process_cases
import pytest
import torch
from process_cases import batches, network
from torch import nn

import d2lmini as d2l
import simgpu
from d2lmini.data_parallel import by_hand
from d2lmini.trainer.trainer import Trainer

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)
MEAN = nn.CrossEntropyLoss()
CASES = [*process_cases.CASES, *process_cases.OURS]
PLACES = {"cpu": ["cpu"] * 3, "sim": ["sim:0", "sim:1", "sim:2"]}


@pytest.fixture(autouse=True)
def gpus():
    """Eight simulated GPUs, with the clock that streams and events need to mean something."""
    simgpu.enable(8)


@pytest.mark.parametrize(
    ("name", "kind", "k"),
    [
        *((name, "cpu", 3) for name in CASES),
        *((name, "sim", 2) for name in ("mean", "adam, clipped", "accumulated", "tree")),
    ],
)
def test_overlap_changes_no_bit(name, kind, k):
    small = {"buckets": 300}  # bytes: several buckets, so that there is something to send early
    plain, ours = (process_cases.train(name, PLACES[kind][:k], overlap=overlap, **small) for overlap in (False, True))
    assert plain["model"].keys() == ours["model"].keys()
    for key in plain["model"]:
        assert torch.equal(plain["model"][key], ours["model"][key]), key
    for mine, theirs in zip(ours["buffers"], plain["buffers"], strict=True):
        assert all(torch.equal(mine[key], theirs[key]) for key in theirs)
    for key in ("loss", "accuracy", "step", "groups"):
        assert ours[key] == plain[key]


class Watch:
    """An all-reduce that notes how many gradients of the last replica were there when each bucket went."""

    def __init__(self):
        self.seen, self.params = [], []

    def __call__(self, tensors):
        self.seen.append(sum(p.grad is not None for p in self.params))
        by_hand.allreduce(tensors)


def watched(**options):
    watch = Watch()
    trainer = Trainer(network(), MEAN, SGD, ["cpu"] * 2, allreduce=watch, buckets=0, **options)
    watch.params = list(trainer.replicas[-1].parameters())
    return watch.seen, trainer


@pytest.mark.parametrize(
    ("options", "steps"),
    [
        ({"overlap": False}, [[4, 4, 4, 4]] * 2),
        ({"overlap": True}, [[1, 2, 3, 4]] * 2),
        ({"overlap": True, "accumulate": 3}, [[], [], [4, 4, 4, 4], []]),  # those of earlier batches are there
    ],
)
def test_buckets_go_while_backward_runs_and_of_accumulated_batches_only_with_the_last(options, steps):
    seen, trainer = watched(**options)
    for counts in steps:
        trainer.step(*batches()[0])
        assert seen == counts
        seen.clear()
    if "accumulate" in options:
        assert len(trainer.engine.reducer.hooks) == 8  # one a parameter
        trainer.engine.update()  # as at the end of an epoch, with one batch of three
        assert seen == [4, 4, 4, 4]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_batch_that_failed_leaves_nothing_behind(overlap):
    first, second = (Trainer(network(), MEAN, SGD, ["cpu"] * 2, overlap=overlap, buckets=300) for _ in range(2))
    X, y = batches()[0]
    wrong = torch.where(torch.arange(len(y)) < 5, y, 3)  # no such class, and all of them with rank 1
    with pytest.raises(IndexError):
        first.step(X, wrong)
    assert all(p.grad is None for replica in first.replicas for p in replica.parameters())
    for trainer in (first, second):
        trainer.step(X, y)
    assert all(map(torch.equal, first.replicas[1].parameters(), second.replicas[1].parameters()))


def test_two_trainers_may_have_one_model():
    found = []
    for overlap in (False, True):
        model = network()
        trainers = [Trainer(model, MEAN, SGD, ["cpu"] * 2, overlap=overlap, buckets=300) for _ in range(2)]
        for turn in (1, 0, 0, 1):  # each has hooks of both on the model's parameters
            trainers[turn].step(*batches()[turn])
        found.append([p.detach() for p in model.parameters()])
    assert all(map(torch.equal, *found))


def traced(X, devices, **options):
    gpus = [f"sim:{i}" for i in range(devices)]
    trainer = Trainer(d2l.LeNet(), MEAN, SGD, gpus, **options)
    y = torch.zeros(len(X), dtype=torch.int64)
    trainer.step(X, y)
    d2l.synchronize(*gpus)
    with simgpu.trace() as trace:
        trainer.step(X, y)
        d2l.synchronize(*gpus)
    return trace


def counts(trace):
    return {kind: sum(span.kind == kind for span in trace.spans) for kind in ("launch", "operation", "copy")}


@pytest.mark.parametrize("buckets", [0, 10**5, 25 * 2**20])
@pytest.mark.parametrize("way", ["eager", "compiled"])
def test_it_sends_the_same_and_is_never_slower(buckets, way):
    simgpu.enable(8, mode=way, shapes_only=True)
    for devices in (1, 3):
        X = torch.ones(64, 1, 28, 28)
        trace = [traced(X, devices, buckets=buckets, overlap=o) for o in (False, True)]
        assert counts(trace[1]) == counts(trace[0])
        assert trace[1].link_bytes() == trace[0].link_bytes()
        assert trace[1].seconds <= trace[0].seconds
        # One bucket leaves when all gradients are there, and the update waits for it. Eagerly an operation costs the
        # host less inside backward, where the bucket is packed then; compiled it costs the same.
        if buckets > 10**7 and way == "compiled":
            assert trace[1].seconds == trace[0].seconds
