"""The labs on failures: right answers unlike the book's pass, and each part of a diagnosis is judged."""

import re

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, Subset

import simgpu
from d2lmini import checks
from d2lmini.checks.diagnosis import FAILURES, diagnosed
from d2lmini.checks.mechanism import Wrong


def by_the_mean_gradient(model, batches):
    """Backward first: the mean gradient is infinite on every rank where it is so on one."""
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        optimizer.zero_grad()
        (model(x) - y).square().mean().backward()
        if all(p.grad.isfinite().all() for p in model.parameters()):
            optimizer.step()
    return model


def by_objects(model, batches):
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in batches:
        loss, fine = (model(x) - y).square().mean(), [None] * dist.get_world_size()
        dist.all_gather_object(fine, bool(loss.isfinite()))
        if all(fine):
            optimizer.zero_grad()
            loss.backward()
            for p in model.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            optimizer.step()
    return model


def fit_by_hand(net, batches, limit):
    """All losses are gathered, and gradients averaged without DDP."""
    optimizer, updates = torch.optim.SGD(net.parameters(), lr=0.1), 0
    for x, y in batches:
        loss, losses = (net(x) - y).square().mean(), [None] * dist.get_world_size()
        dist.all_gather_object(losses, loss.item())
        mean = sum(losses) / len(losses)
        if mean < limit:
            break
        if mean <= 1e30:  # neither NaN nor infinite
            optimizer.zero_grad()
            loss.backward()
            for p in net.parameters():
                dist.all_reduce(p.grad, op=dist.ReduceOp.AVG)
            optimizer.step()
            updates += 1
    return updates


def fit_by_gradients(net, batches, limit):
    """Backward on every rank; where one rank's loss is infinite the mean gradient is so on all."""
    model, updates = DDP(net), torch.zeros(())
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for x, y in batches:
        loss = (model(x) - y).square().mean()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if total / dist.get_world_size() < limit:
            break
        optimizer.zero_grad()
        loss.backward()
        if all(p.grad.isfinite().all() for p in net.parameters()):
            optimizer.step()
            updates += 1
    return updates


@pytest.mark.parametrize("answer", [fit_by_hand, fit_by_gradients])
def test_other_right_fits_pass(answer):
    assert checks.fit_together(answer)


def train_on(loaders, model):
    model = DDP(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for loader in loaders:
        for x, y in loader:
            optimizer.zero_grad()
            (model(x.to("sim")) - y.to("sim")).square().mean().backward()
            optimizer.step()
    return model


def by_subsets(model, dataset, epochs):
    mine = Subset(dataset, range(dist.get_rank(), len(dataset), dist.get_world_size()))
    return train_on([DataLoader(mine, 4, shuffle=True)] * epochs, model)


def by_permutations(model, dataset, epochs):
    orders = [torch.randperm(len(dataset), generator=torch.Generator().manual_seed(e)) for e in range(epochs)]
    mine = [order.chunk(dist.get_world_size())[dist.get_rank()].tolist() for order in orders]
    return train_on([DataLoader(dataset, 4, sampler=order) for order in mine], model)


def by_slices(model, dataset, epochs):
    """All ranks load the same large batches, and each trains on its four rows of them."""
    torch.manual_seed(5)
    ranks, begin = dist.get_world_size(), 4 * dist.get_rank()
    loader = DataLoader(dataset, 4 * ranks, shuffle=True)
    return train_on([[(x[begin : begin + 4], y[begin : begin + 4]) for x, y in loader] for _ in range(epochs)], model)


@torch.no_grad()
def by_guesses(model, x, y):
    right, everybodys = (model(x).argmax(1) == y).cpu().numpy(), [None] * dist.get_world_size()
    dist.all_gather_object(everybodys, [right.sum().item(), len(right)])
    return torch.tensor(sum(r for r, _ in everybodys) / sum(n for _, n in everybodys))


@torch.no_grad()
def by_rank_0(model, x, y):
    both = torch.tensor([(model(x).argmax(1) == y).sum(), len(y)], dtype=torch.float64, device=x.device)
    dist.reduce(both, 0)
    dist.broadcast(both, 0)
    return (both[0] / both[1]).cpu().numpy()


def onto_each_gpu(model, path):
    state = torch.load(path, map_location=next(model.parameters()).device)
    model.load_state_dict(state["model"])
    optimizer = torch.optim.AdamW(model.parameters())
    optimizer.load_state_dict(state["optimizer"])
    return DDP(model), optimizer


def from_rank_0(model, path):
    optimizer = torch.optim.AdamW(model.parameters())
    state = [torch.load(path, map_location="cpu") if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(state, 0)
    model.load_state_dict(state[0]["model"])
    optimizer.load_state_dict(state[0]["optimizer"])
    return DDP(model), optimizer


def by_one_message(net, batches, every):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for start in range(0, len(batches), every):
        group = batches[start : start + every]
        torch.stack([(net(x) - y).square().mean() for x, y in group]).mean().backward()
        flat = torch.cat([p.grad.flatten() for p in net.parameters()]) / dist.get_world_size()
        dist.all_reduce(flat)
        for p, mean in zip(net.parameters(), flat.split([p.numel() for p in net.parameters()])):
            p.grad = mean.view_as(p)
        optimizer.step()
        optimizer.zero_grad()


def by_the_flag(net, batches, every):
    model, full = DDP(net), len(batches) // every * every
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
    for i, (x, y) in enumerate(batches):
        model.require_backward_grad_sync = (i + 1) % every == 0 or i + 1 == len(batches)
        ((model(x) - y).square().mean() / (every if i < full else len(batches) - full)).backward()
        if model.require_backward_grad_sync:
            optimizer.step()
            optimizer.zero_grad()


def from_rank_to_rank(tensor):
    rank, last, total = dist.get_rank(), dist.get_world_size() - 1, tensor.clone()
    if rank > 0:
        dist.recv(total, rank - 1)
        total += tensor
    if rank < last:
        dist.send(total, rank + 1)
    dist.broadcast(total, last)
    return total


def each_its_chunk(tensor):
    ranks, n = dist.get_world_size(), len(tensor)
    chunks = list(torch.nn.functional.pad(tensor, (0, -n % ranks)).chunk(ranks))
    parts, sums = ([torch.empty_like(chunk) for chunk in chunks] for _ in range(2))
    dist.all_to_all(parts, chunks)
    dist.all_gather(sums, sum(parts))
    return torch.cat(sums)[:n]


RIGHT = [
    ("hanging_job", by_the_mean_gradient),
    ("hanging_job", by_objects),
    ("repeated_epoch", by_subsets),
    ("repeated_epoch", by_permutations),
    ("repeated_epoch", by_slices),
    ("full_rank", by_guesses),
    ("full_rank", by_rank_0),
    ("lone_resume", onto_each_gpu),
    ("lone_resume", from_rank_0),
    ("left_over", by_one_message),
    ("left_over", by_the_flag),
    ("one_order", from_rank_to_rank),
    ("one_order", each_its_chunk),
]


@pytest.mark.parametrize(("name", "answer"), RIGHT, ids=lambda part: getattr(part, "__name__", part))
def test_other_right_answers_pass(name, answer):
    failure = FAILURES[name]
    said = {"rank": failure.rank, "line": failure.lines[0].lower(), "cause": failure.cause}
    assert getattr(checks, name)(answer, **said), "see the output"


def test_a_lab_on_full_gpus_leaves_those_of_the_reader():
    simgpu.enable(4, gpu="A100-SXM4-80GB")
    checks.full_rank(by_guesses, rank=0, line="C", cause="collects on one rank")
    assert torch.sim.get_device_name(0).endswith("A100-SXM4-80GB")
    assert torch.sim.get_device_properties(0).total_memory > 2**35


SAID = {"rank": 2, "line": "C", "cause": "skips a collective"}


@pytest.mark.parametrize(
    ("said", "says"),
    [
        ({}, "say the rank, the line, the cause"),
        ({**SAID, "why": ""}, "expected rank=, line= and cause="),
        ({**SAID, "rank": None, "cause": None}, "say the rank, the cause"),
        ({**SAID, "rank": 1}, "for whom"),
        ({**SAID, "rank": "2"}, "a rank's number"),
        ({**SAID, "line": 17}, "letter"),
        ({**SAID, "line": "D"}, "the ranks wait there"),
        ({**SAID, "cause": "deadlock"}, "one of 'skips a collective'"),
        ({**SAID, "cause": "another order"}, "less often"),
    ],
)
def test_a_diagnosis_is_judged_part_by_part(said, says):
    with pytest.raises(Wrong, match=says):
        diagnosed("hanging_job", said, lambda: "all is well")


def test_symptom_and_diagnosis_are_told_together():
    def fails():
        raise Wrong("4 ranks: no rank can go on.")

    with pytest.raises(Wrong, match=r"go on\. Your diagnosis: it is right; now mend"):
        diagnosed("hanging_job", SAID, fails)
    assert "mended: fine" in diagnosed("hanging_job", {**SAID, "rank": torch.tensor(2), "line": " # c"}, lambda: "fine")


def by_every(net, batches, every):
    """The batches left over are averaged, but divided by as many as a whole update has."""
    full = len(batches) // every * every
    by_the_flag(net, batches[:full], every)
    model, optimizer = DDP(net), torch.optim.SGD(net.parameters(), lr=0.1)
    if full < len(batches):
        (sum((model(x) - y).square().mean() for x, y in batches[full:]) / every).backward()
        optimizer.step()


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            by_every,
            "the last update, of the 1 batch left over, is wrong: .*divide by the 1 batch that it has, not by 2",
        ),
        (lambda net, batches, every: by_the_flag(net, batches[: len(batches) // every * every], every), "is missing"),
        (lambda net, batches, every: DDP(net), "after 3 updates of 2 batches they should be"),
        (
            eval(compile("lambda net, batches, every: (\nnet.width)", "<cell>", "eval")),
            r"no attribute 'width' \(in line 2\)",
        ),
    ],
)
def test_the_wrong_update_and_line_are_named(answer, says):
    assert re.search(says, checks.left_over(answer).sentence)
