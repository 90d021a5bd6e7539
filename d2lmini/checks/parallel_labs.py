"""Checks of the labs on data parallelism: a slow step and a full first GPU, judged by the clock and the allocator."""

import contextlib

import torch
from torch import nn
from torch.nn import functional as F

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, attempt, check, many, need_gpus, scored, typed
from d2lmini.checks.traced import run_on_ranks, uncovered_ms
from simgpu.hardware.machines import build

EXPOSED_MS, BOOK_MS = 0.4, 0.24  # what the lab on overlap asks for, and what the book's answer reaches
WIDTH, LAYERS, CLASSES, ROWS = 192, 16, 4096, 256  # its network: a wide last layer, whose gradient comes first
SHARDS = ((3, 2), (4, 1, 2), (5,), (2, 2))
VOCABULARY, PEAK = 4096, 1.3  # the lab on memory: logits of an example; one GPU's peak against another's, at most


@check
def overlapped(function):
    """``function(net)``, on each rank: have gradients averaged over ranks; returns what to call after backward."""
    need_gpus(3)
    for ranks, steps in ((3, 1), (3, 3), (2, 3), (1, 3)):  # one step first: what is wrong in it may break the next
        _try_means(function, ranks, steps)
    machine = build(max(2, torch.sim.device_count()), "V100-PCIe-16GB", "PCIe3-x16")
    given = f"a network of {LAYERS + 1} layers on two ranks"
    with simgpu.use_clock(simgpu.Clock(machine)), simgpu.trace() as trace:
        found, _ = run_on_ranks(_timed, 2, given, function)
    _must_be_means(given, *zip(*[gradients for _, _, gradients in found]))
    late, messages = _exposed_ms(trace, min(began for began, _, _ in found), max(end for _, end, _ in found))
    told = scored("overlapped", late, BOOK_MS, "ms of communication are exposed")
    if late > EXPOSED_MS:
        sent = f"{many(messages, 'message')}{' with a fixed cost each' if messages > 1 else ''}"
        raise Wrong(f"{given}: the gradients are right, but {told}, for {sent}; bring it below {EXPOSED_MS} ms")
    return f"every rank has the mean gradients, and {told}"


def _small_net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2))


def _backward(net, rank, step):
    scale = torch.tensor(10.0**rank, device=next(net.parameters()).device)
    (net(scale * (torch.arange(6.0, device=scale.device).view(2, 3) + step)) * scale).sum().backward()


def _try_means(function, ranks, steps):
    want = []
    for step in range(steps):
        nets = [_small_net() for _ in range(ranks)]
        for rank, net in enumerate(nets):
            _backward(net, rank, step)
        want.append([sum(gs) / ranks for gs in zip(*([p.grad for p in net.parameters()] for net in nets))])
    given = many(ranks, "rank")
    found, _ = run_on_ranks(_steps, ranks, given, function, steps)
    for rank, (taken, held) in enumerate(found):
        for step, gradients in enumerate(taken):
            for place, (mean, got) in enumerate(zip(want[step], gradients)):
                where = f"{given}, step {step + 1}: on rank {rank}"
                if got is None:
                    raise Wrong(f"{where} parameter {place} has no gradient")
                if off := first_off(f"the mean gradient of parameter {place}", mean, got, rtol=1e-4, atol=1e-4):
                    raise Wrong(f"{where} {off}")
        more = held[2] - held[1] if steps > 2 else 0
        if more > 0:
            raise Wrong(f"{given}: on rank {rank} the third step keeps {more:,} bytes more: empty your lists")


def _steps(rank, function, steps):
    net, found, held = _small_net().to("sim"), [], []
    with _hooked(function, net) as finish:
        for step in range(steps):
            net.zero_grad(set_to_none=step != 2)
            _backward(net, rank, step)
            finish()
            found.append([None if p.grad is None else p.grad.cpu() for p in net.parameters()])
            held.append(torch.sim.memory_allocated())
        return found, held


@contextlib.contextmanager
def _hooked(function, net):
    """Let the reader's function prepare a network, and take its hooks away at the end: they may hold the parameters."""
    try:
        finish = function(net)
        if not callable(finish):
            raise TypeError(f"expected a function to call after backward, got {typed(finish)}")
        yield finish
    finally:
        for parameter in net.parameters():
            parameter._post_accumulate_grad_hooks = parameter._backward_hooks = None


def _timed(rank, function):
    """Return when the second step began its backward pass, when it ended, and its own and its joined gradients."""
    layers = [layer for _ in range(LAYERS) for layer in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    net = nn.Sequential(*layers, nn.Linear(WIDTH, CLASSES)).to("sim")
    X = torch.rand(ROWS, WIDTH, device="sim")
    with _hooked(function, net) as finish:
        for _ in range(2):
            net.zero_grad()
            loss = net(X).square().mean()
            torch.sim.synchronize()
            began = simgpu.now()
            loss.backward()
            finish()
            torch.sim.synchronize()
    end, parameters = simgpu.now(), list(net.parameters())
    own = torch.autograd.grad(net(X).square().mean(), parameters)  # without the reader's hooks
    return began, end, [[None if g is None else g.cpu() for g in gs] for gs in (own, (p.grad for p in parameters))]


def _must_be_means(given, own, joined):
    """Raise Wrong unless each rank's joined gradients are the means of all ranks' own."""
    for rank, found in enumerate(joined):
        for place, (got, *parts) in enumerate(zip(found, *own)):
            if got is None or not torch.allclose(got, sum(parts) / len(parts), rtol=1e-3, atol=1e-7):
                raise Wrong(f"{given}: parameter {place} of rank {rank} has not the mean gradient: average all of them")


def _exposed_ms(trace, began, end):
    spans = [span for span in trace.spans if span.place == "gpu0" and began <= span.start_s < end]
    sent, operations = ([span for span in spans if span.kind == kind] for kind in ("communication", "operation"))
    return uncovered_ms(sent, operations), len(sent)


@check
def parallel_loss(function):
    """``function(replicas, X_shards, y_shards)``: the mean loss of the whole batch, on the first replica's GPU."""
    need_gpus(3)
    for sizes in SHARDS:
        _try_loss(function, sizes, 5)
    peaks = _try_loss(function, (64, 64, 64), VOCABULARY)
    most = max(peaks)
    if min(peaks) < 4 * 64 * VOCABULARY:
        few = f"GPU {peaks.index(min(peaks))} needs {min(peaks) / 1e6:.1f} MB at most, and its logits alone are"
        raise Wrong(
            f"64 examples on each of 3 GPUs: {few} {4 * 64 * VOCABULARY / 1e6:.1f} MB: it should compute its own"
        )
    told = f"GPU {peaks.index(most)} needs {most / 1e6:.1f} MB at most, another {min(peaks) / 1e6:.1f} MB"
    if most > PEAK * min(peaks):
        raise Wrong(f"64 examples on each of 3 GPUs: the loss is right, but {told}: leave the logits where they are")
    return f"loss and gradients are those of the whole batch, and {told}"


def _shards(sizes, classes):
    torch.manual_seed(0)
    module = nn.Linear(4, classes)
    X, y = torch.rand(sum(sizes), 4), torch.arange(sum(sizes)) % classes
    gpus = [torch.device("sim", i) for i in range(len(sizes))]
    replicas = [nn.Linear(4, classes).to(gpu) for gpu in gpus]
    for replica in replicas:
        replica.load_state_dict(module.state_dict())
    parts = [[part.to(gpu) for part, gpu in zip(t.split(sizes), gpus)] for t in (X, y)]
    return module, X, y, replicas, *parts


def _try_loss(function, sizes, classes):
    """Return the peak memory of each GPU, beside what it was given; raise Wrong for another loss or gradient."""
    module, X, y, replicas, X_shards, y_shards = _shards(sizes, classes)
    given = f"shards of {', '.join(map(str, sizes))}"
    want = F.cross_entropy(module(X), y)
    want.backward()
    before = [torch.sim.memory_allocated(x.device) for x in X_shards]
    for x in X_shards:
        torch.sim.reset_peak_memory_stats(x.device)
    loss = attempt(lambda: function(replicas, X_shards, y_shards), given=given)
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1 or loss.dtype != want.dtype:
        raise Wrong(f"{given}: expected a tensor with one number of float32, got {typed(loss)}")
    if loss.device != torch.device("sim:0"):
        raise Wrong(f"{given}: expected the loss on sim:0, got it on {loss.device}")
    if not torch.allclose(loss.detach().cpu().view(()), want, rtol=1e-4):
        raise Wrong(f"{given}: expected the loss {want.item():.4f}, got {loss.item():.4f}")
    if not loss.requires_grad:
        raise Wrong(f"{given}: no gradient can flow back from the loss: stay with tensors")
    loss.sum().backward()
    peaks = [torch.sim.max_memory_allocated(x.device) - base for x, base in zip(X_shards, before)]
    grads = [replica.weight.grad for replica in replicas]
    if None in grads or not torch.allclose(sum(g.cpu() for g in grads), module.weight.grad, rtol=1e-4, atol=1e-6):
        raise Wrong(f"{given}: the replicas' gradients do not add up to that of the whole batch")
    return peaks
