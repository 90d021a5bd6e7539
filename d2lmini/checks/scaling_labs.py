"""The check of the lab on how far a batch may be divided: the reader predicts from one GPU, the check runs them all."""

import functools
from itertools import pairwise

import torch
import torch.distributed as dist
from torch.nn import functional as F

import simgpu
from d2lmini.checks.mechanism import Wrong, ask, brief, check, many, need_gpus
from simgpu.hardware.machines import MACHINES, build, cluster

COUNTS = [1, 2, 4, 8]
SHAPES = [(16384, 4096), (4096, 16384)] * 2  # of the layers' weights
TYPE = {"device": "sim", "dtype": torch.bfloat16}
NAMES = {"NVLink": "DGX H100", "PCIe": "H100 on PCIe 5", "A100": "DGX A100"}
CASES = (  # machine, tokens in all, least efficiency
    ("NVLink", 16384, 0.82),
    ("PCIe", 16384, 0.55),
    ("A100", 32768, 0.87),
)


@check
def gpus_worth(function):
    """``function(step, message, tokens, least, counts)``: the largest count at which strong scaling is efficient."""
    need_gpus(COUNTS[-1], numbers=False)
    for name, tokens, least in CASES:
        given = f"{NAMES[name]}, {tokens:,} tokens, efficiency at least {least:.0%}"
        said = ask(function, *_measures(name), tokens, least, COUNTS, given=given, what="1, 2, 4 or 8 GPUs")
        _judge(given, name, tokens, least, said)
    return f"{many(len(CASES), 'prediction')}, each confirmed by a step on all GPUs"


def _measures(name):
    """Return what the reader may measure: a step of one GPU, and the all-reduces."""
    return lambda tokens: list(_step(name, 1, int(tokens))), lambda gpus: _message(name, int(gpus))


def _judge(given, name, tokens, least, said):
    if said not in COUNTS:
        raise Wrong(f"{given}: expected 1, 2, 4 or 8 GPUs, got {brief(said)}")
    said = int(said)  # an answer of 4.0 is a number of GPUs
    reached = _efficiency(name, said, tokens)
    if reached < least:
        raise Wrong(f"{given}: you say {said}, but a step on them reaches {reached:.0%}")
    for more in COUNTS[COUNTS.index(said) + 1 :][:1]:  # each count is less efficient than the one before
        if (reached := _efficiency(name, more, tokens)) >= least:
            raise Wrong(f"{given}: you say {said}, but {more} GPUs still reach {reached:.0%}")


def _efficiency(name, gpus, tokens):
    return sum(_step(name, 1, tokens)) / gpus / sum(_step(name, gpus, tokens // gpus))


def _clock(name):
    """Return a machine's clock; of several where the reader has more GPUs, as the first eight are in one of them."""
    if name == "PCIe":
        machine = build(max(COUNTS[-1], torch.sim.device_count()), "H100-PCIe-80GB", "PCIe5-x16", peer=True)
    else:
        node = MACHINES[NAMES[name].replace(" ", "-")]
        nodes = -(-torch.sim.device_count() // node.count)
        machine = cluster(node, nodes) if nodes > 1 else node
    return simgpu.use_clock(simgpu.Clock(machine))


@functools.cache
def _message(name, gpus):
    """Return the seconds of all layers' all-reduces, one after another."""
    with _clock(name):
        return len(SHAPES) * max(simgpu.spawn(_timed_sum, nprocs=gpus)) if gpus > 1 else 0.0


@functools.cache
def _step(name, gpus, tokens):
    """Return the seconds of forward, backward and update with so many tokens on each GPU."""
    with _clock(name):
        return [max(seconds) for seconds in zip(*simgpu.spawn(_timed, (tokens,), nprocs=gpus))]


def _timed(rank, tokens):
    weights = [torch.empty(shape, **TYPE).requires_grad_() for shape in SHAPES]
    X = torch.empty(tokens, SHAPES[0][1], **TYPE).requires_grad_()
    optimizer, works = torch.optim.SGD(weights, lr=0.1), []
    for w in weights:
        w.register_post_accumulate_grad_hook(lambda w: works.append(dist.all_reduce(w.grad, async_op=True)))
    dist.barrier()  # all ranks start together
    times = [_now()]
    for w in weights:
        X = F.relu(X @ w.T)
    times.append(_now())
    X.sum().backward()
    for work in works:
        work.wait()
    times.append(_now())
    optimizer.step()
    return [b - a for a, b in pairwise([*times, _now()])]


def _timed_sum(rank):
    data = torch.empty(SHAPES[0], **TYPE)
    dist.barrier()
    begin = _now()
    dist.all_reduce(data)
    return _now() - begin


def _now():
    torch.sim.synchronize()
    return simgpu.now()
