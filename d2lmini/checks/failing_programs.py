"""Checks of the labs on failures: programs of several ranks that hang, repeat work or come apart."""

import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import Dataset

import simgpu
from d2lmini.checks.diagnosis import diagnosed
from d2lmini.checks.mechanism import Wrong, brief, called, check, listed, many, need_gpus, typed
from d2lmini.checks.traced import run_on_ranks

RATE, BATCH = 0.1, 4
NAN, INF, LARGE = torch.nan, torch.inf, 3e38  # of targets; the square of the last is infinite, and so is its gradient
SKIPS = (  # ranks, and the targets by which a loss is not finite, as {(rank, step): target}
    (4, {(2, 1): INF}),
    (3, {(0, 0): NAN, (1, 3): LARGE}),
    (2, {(0, 2): LARGE, (1, 2): NAN}),
)


@check
def hanging_job(function, **said):
    """``function(model, batches)``, on each rank: training with DDP, where no rank takes a step that one cannot."""
    need_gpus(4)
    return diagnosed("hanging_job", said, lambda: _try_skips(function))


def _try_skips(function):
    for ranks, bad in SKIPS:
        batches = [_batches(rank, bad) for rank in range(ranks)]
        told = " and ".join(f"{y:g} on rank {rank} in step {step}" for (rank, step), y in sorted(bad.items()))
        given, want = many(ranks, "rank"), _mean_steps(_model(0), batches)
        for rank, got in enumerate(run_on_ranks(_train, ranks, given, function, batches)[0]):
            _must_be_near(want, got, f"{given}, targets of {told}: in the end weight and bias of rank {rank}")
    return "no rank takes a step that one of them cannot take, and the others are as on one GPU"


def _model(seed):
    torch.manual_seed(seed)
    return nn.Linear(3, 1)


def _batches(rank, bad):
    numbers = torch.Generator().manual_seed(rank + 1)
    batches = [(torch.randn(2, 3, generator=numbers), torch.randn(2, 1, generator=numbers)) for _ in range(4)]
    for step, (_, y) in enumerate(batches):
        if (rank, step) in bad:
            y.fill_(bad[rank, step])
    return batches


def _train(rank, function, batches):
    dist.init_process_group("nccl")
    return _weights(called(function, _model(0).to("sim"), [(x.to("sim"), y.to("sim")) for x, y in batches[rank]]))


def _weights(model):
    if not isinstance(model, nn.Module):
        raise TypeError(f"expected the trained model, got {typed(model)}")
    return torch.cat([p.detach().flatten().cpu() for p in model.parameters()])


def _mean_steps(model, batches, optimizer=None):
    """Train as one process with the batches of all ranks; a step with a loss that is not finite is left out."""
    optimizer = optimizer or torch.optim.SGD(model.parameters(), lr=RATE)
    for parts in zip(*batches):
        loss = sum((model(x) - y).square().mean() for x, y in parts) / len(parts)
        if loss.isfinite():
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return _weights(model)


def _must_be_near(want, got, what):
    if got.shape != want.shape or not torch.allclose(got, want, rtol=1e-3, atol=1e-5):
        raise Wrong(f"{what} should be {brief(want)}, they are {brief(got)}")


class _Examples(Dataset):
    """Examples on the CPU."""

    def __init__(self, count):
        numbers = torch.Generator().manual_seed(count)
        self.x, self.y = torch.randn(count, 3, generator=numbers), torch.randn(count, 1, generator=numbers)

    def __len__(self):
        return len(self.x)

    def __getitem__(self, i):
        return self.x[i], self.y[i]


@check
def repeated_epoch(function, **said):
    """``function(model, dataset, epochs)``, on each rank: training in which the ranks share each epoch's examples."""
    need_gpus(4)
    return diagnosed("repeated_epoch", said, lambda: _try_epochs(function))


def _try_epochs(function, epochs=2):
    for ranks, each in ((4, 8), (3, 8), (1, 8)):
        count = ranks * each
        given = f"{many(ranks, 'rank')}, {count} examples"
        found, _ = run_on_ranks(_train_epochs, ranks, given, function, count, epochs)
        for rank, (rows, _) in enumerate(found):
            _must_be_a_share(rows, rank, each, epochs, given)
        for epoch in range(epochs):
            _must_share([rows[epoch * each : (epoch + 1) * each] for rows, _ in found], f"{given}: in epoch {epoch}")
        first, second = (found[0][0][i * each : (i + 1) * each] for i in range(2))
        if first == second:
            raise Wrong(f"{given}: rank 0 has its examples in the same order in both epochs; shuffle anew")
        data = _Examples(count)
        batches = [
            [(data.x[rows[i : i + BATCH]], data.y[rows[i : i + BATCH]]) for i in range(0, len(rows), BATCH)]
            for rows, _ in found
        ]
        want = _mean_steps(_model(0), batches)
        for rank, (_, got) in enumerate(found):
            _must_be_near(want, got, f"{given}: from its examples, {BATCH} a step, weight and bias of rank {rank}")
    return "in each epoch every example is on one rank, in a new order"


def _train_epochs(rank, function, count, epochs):
    dist.init_process_group("nccl")
    data, model, rows = _Examples(count), _model(0).to("sim"), []
    places = {tuple(x.tolist()): i for i, x in enumerate(data.x)}

    def note(_, inputs):
        if torch.is_grad_enabled():
            rows.extend(places.get(tuple(x.tolist()), -1) for x in inputs[0].detach().cpu())

    model.register_forward_pre_hook(note)  # a program may read examples that it does not train on
    torch.manual_seed(rank)  # processes of their own begin with different numbers
    return rows, _weights(called(function, model, data, epochs))


def _must_be_a_share(rows, rank, each, epochs, given):
    if -1 in rows:
        raise Wrong(f"{given}: rank {rank} gives the model rows that are not in the dataset")
    if len(rows) != each * epochs:
        share = f"its share is {each} an epoch, {many(each // BATCH, 'step')} of {BATCH}"
        raise Wrong(f"{given}: in {epochs} epochs rank {rank} trains on {many(len(rows), 'example')}; {share}")


def _must_share(seen, given):
    everybodys = sorted(row for rows in seen for row in rows)
    for i in range(len(everybodys)):
        if (times := everybodys.count(i)) != 1:
            raise Wrong(f"{given} the ranks train {many(times, 'time')} on example {i}; once is right")


@check
def lone_resume(function, **said):
    """``function(model, path)``, on each rank: a DDP model and its AdamW, as they were saved."""
    need_gpus(4)
    with tempfile.TemporaryDirectory() as folder, simgpu.as_cuda():
        path = str(Path(folder, "checkpoint.pt"))
        simgpu.spawn(_save, (path,), nprocs=1)
        return diagnosed("lone_resume", said, lambda: _try_resume(function, path))


def _save(rank, path):
    model = _model(1).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=RATE)
    _mean_steps(model, [[(x.cuda(), y.cuda()) for x, y in _batches(9, ())]], optimizer)
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, path)


def _try_resume(function, path):
    for ranks in (4, 2):
        batches = [_batches(rank, ()) for rank in range(ranks)]
        model, state = _model(0), torch.load(path, map_location="cpu")
        model.load_state_dict(state["model"])
        optimizer = torch.optim.AdamW(model.parameters())
        optimizer.load_state_dict(state["optimizer"])
        want, given = _mean_steps(model, batches, optimizer), many(ranks, "rank")
        found = run_on_ranks(_resume, ranks, given, function, path, batches)[0]
        first, last = found[0][0], found[-1][0]
        if not torch.allclose(first, last):
            both = f"weight and bias of rank 0 are {brief(first)}, those of rank {ranks - 1} {brief(last)}"
            raise Wrong(f"{given}: {len(batches[0])} steps after resuming the replicas differ: {both}")
        for rank, (got, used, moments) in enumerate(found):
            if not moments:
                raise Wrong(f"{given}: the optimiser of rank {rank} has no moments: load its state")
            _must_be_near(
                want, got, f"{given}: after resuming and {len(batches[0])} steps weight and bias of rank {rank}"
            )
            others = [gpu for gpu, size in enumerate(used) if size and gpu != rank]
            if others:
                raise Wrong(f"{given}: rank {rank} puts tensors on GPU {others[0]}, which is not its own")
    return "every rank has the saved weights and moments, on its own GPU"


def _resume(rank, function, path, batches):
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    answer = called(function, _model(rank + 2).cuda(), path)
    model, optimizer = listed(answer, 2) or (None, None)
    if not isinstance(model, nn.Module) or not isinstance(optimizer, torch.optim.Optimizer):
        got = ", ".join(type(part).__name__ for part in listed(answer) or [answer])
        raise TypeError(f"expected (model, optimiser), got {got}")
    moments = len(optimizer.state)
    for x, y in batches[rank]:
        optimizer.zero_grad()
        (model(x.cuda()) - y.cuda()).square().mean().backward()
        optimizer.step()
    return _weights(model), [torch.cuda.max_memory_allocated(gpu) for gpu in range(torch.cuda.device_count())], moments
