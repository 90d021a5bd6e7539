"""Check of the lab on a full GPU: an evaluation of several ranks whose logits meet on one of them."""

import contextlib

import torch
import torch.distributed as dist
from torch import nn

import simgpu
from d2lmini.checks.diagnosis import diagnosed
from d2lmini.checks.mechanism import Wrong, called, check, many, need_gpus, number, typed
from d2lmini.checks.traced import run_on_ranks

MEMORY, CLASSES = 16 * 2**20, 4096  # bytes of each GPU; logits of 256 examples take a quarter


@check
def full_rank(function, **said):
    """``function(model, x, y)``, on each rank: the share of right answers of all ranks, on every rank."""
    with _small_gpus(), simgpu.as_cuda():
        return diagnosed("full_rank", said, lambda: _try_shares(function))


@contextlib.contextmanager
def _small_gpus():
    """Have GPUs of little memory, and afterwards those that there were."""
    need_gpus(4)
    before, memory = simgpu.machine(), torch.sim.get_device_properties(0).total_memory
    try:
        simgpu.enable(machine=before, memory=MEMORY)
    except RuntimeError as error:
        raise Wrong(f"to try your code takes GPUs of {MEMORY >> 20} MiB, and there are none: {error}") from error
    try:
        yield
    finally:
        simgpu.enable(machine=before, memory=memory)


def _try_shares(function):
    for sizes in ((256,) * 4, (256, 8, 40), (5,)):
        numbers = torch.Generator().manual_seed(len(sizes))
        shards = [torch.randn(size, 8, generator=numbers) for size in sizes]
        labels = [torch.randint(2, (size,), generator=numbers) for size in sizes]
        right = sum(int((_wide()(x).argmax(1) == y).sum()) for x, y in zip(shards, labels))
        want, given = right / sum(sizes), f"{many(len(sizes), 'rank')} with {', '.join(map(str, sizes))} examples"
        answers, messages = run_on_ranks(_evaluate, len(sizes), given, function, shards, labels)
        for rank, answer in enumerate(answers):
            got = number(answer)
            if got is None or abs(got - want) > 1e-5:
                raise Wrong(f"{given}: rank {rank} should return the share {want:.4f}, got {typed(answer)}")
        sent = sum(span.nbytes for span in messages)
        if sent > 2**16:
            raise Wrong(f"{given}: the share is right, but {sent:,} bytes were sent; the logits need not travel")
    return f"GPUs of {MEMORY >> 20} MiB are enough, and no logits travel"


def _wide():
    torch.manual_seed(0)
    model = nn.Linear(8, CLASSES)
    model.bias.data[:2] += 2  # the first two classes are often right
    return model


def _evaluate(rank, function, shards, labels):
    dist.init_process_group("nccl")
    torch.cuda.set_device(rank)
    answer = called(function, _wide().cuda(), shards[rank].cuda(), labels[rank].cuda())
    return answer.cpu() if isinstance(answer, torch.Tensor) else answer
