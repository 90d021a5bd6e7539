"""Checks of the exercises on tests: how few runs find the answer, and which faulty programs a reader's test accepts."""

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from d2lmini.checks.mechanism import Wrong, ask, attempt, brief, check, need_gpus, scored

BOUNDS = ((16_384, 8, 3.3, 2.2), (64, 8, 6.5, 0.9), (1, 4, 2, 1), (1000, 24, 0.1, 20), (96, 8, 7.1, 4.9))
NONE_FITS = ((64, 8, 7.3, 1), (1, 4, 3, 2))  # rows, memory in GiB, what stays, what is divided by the parts


@check
def fewest_parts(function):
    """``function(peak_of, rows, memory)``: the fewest micro-batches whose peak leaves a tenth of the memory free."""
    for rows, memory, stays, divided in (*BOUNDS, *NONE_FITS):
        memory *= 2**30
        peaks = {n: int((stays + divided / n) * 2**30) for n in range(1, rows + 1)}
        want = next((n for n in range(1, rows + 1) if peaks[n] <= 0.9 * memory), None)
        most, runs = 2 * (rows.bit_length() - 1) + 3, []

        def peak_of(parts, rows=rows, peaks=peaks, runs=runs, most=most):
            if len(runs) == most:
                raise RuntimeError(f"{most} runs are allowed, and this would be one more")
            if not isinstance(parts, int) or not 1 <= parts <= rows:
                raise ValueError(f"peak_of takes a whole number of parts from 1 to {rows}, got {brief(parts)}")
            runs.append(parts)
            return peaks[parts]

        given = f"{rows:,} rows, a card of {memory / 2**30:g} GiB"
        if want is None:  # nothing is returned, and that is right
            (found,) = attempt(lambda *asked: [function(*asked)], peak_of, rows, memory, given=given)
            if found is not None:
                raise Wrong(f"{given}: no number of parts is enough: expected None, got {brief(found)}")
        else:
            found = ask(function, peak_of, rows, memory, given=given, what="a number of parts")
            if found != want:
                raise Wrong(f"{given}: expected {want}, got {brief(found)}")
    return "the fewest micro-batches, found in few runs"


def _trained(x, y, join, seed=0):
    """Train as the lab asks; `join` gets each gradient of the sum of losses, and the number of examples on the rank."""
    torch.manual_seed(seed)
    model = nn.Linear(4, 1).to(x.device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    for step in range(2):
        optimizer.zero_grad()
        (model(x) - y).square().sum().backward()
        for name, parameter in model.named_parameters():
            join(parameter.grad, len(x), name, step)
        optimizer.step()
    return model


def _mean(grad, examples, *_):
    """Make of a rank's sum the mean over all examples."""
    both = torch.cat([grad.flatten(), grad.new_tensor([examples])])
    dist.all_reduce(both)
    grad.copy_((both[:-1] / both[-1]).view_as(grad))


def by_hand(x, y):
    """Gradients of sums are added up and divided by the number of examples."""
    return _trained(x, y, _mean)


def by_ddp(x, y):
    """DDP's mean over ranks is made the mean over examples by scaling the loss."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Linear(4, 1).to(x.device))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    count = x.new_tensor([len(x)])
    dist.all_reduce(count)
    for _ in range(2):
        optimizer.zero_grad()
        scale = dist.get_world_size() / count.item()
        ((model(x) - y).square().sum() * scale).backward()
        optimizer.step()
    return model.module


def sums(x, y):
    """It adds the ranks' means up."""

    def join(grad, examples, *_):
        grad /= max(1, examples)
        dist.all_reduce(grad)

    return _trained(x, y, join)


def own_seeds(x, y):
    """Each rank starts from weights of its own."""
    return _trained(x, y, _mean, seed=dist.get_rank())


def mean_of_means(x, y):
    """It weights each rank alike, however many examples it has."""

    def join(grad, examples, *_):
        grad /= max(1, examples) * dist.get_world_size()
        dist.all_reduce(grad)

    return _trained(x, y, join)


def last_bias(x, y):
    """The gradient of the bias is not joined in the second step."""

    def join(grad, examples, name, step):
        if name == "bias" and step == 1:
            grad /= max(1, examples)
        else:
            _mean(grad, examples)

    return _trained(x, y, join)


def last_rank_stays(x, y):
    """The last of several ranks does not take the second step."""

    def join(grad, examples, _, step):
        _mean(grad, examples)
        if step == 1 and dist.get_rank() == dist.get_world_size() - 1 > 0:
            grad.zero_()

    return _trained(x, y, join)


def mixed_chunks(x, y):
    """In the second step a gradient's numbers come back in another order."""

    def join(grad, examples, _, step):
        _mean(grad, examples)
        if step == 1 and dist.get_world_size() > 1:
            grad.copy_(grad.roll(1))

    return _trained(x, y, join)


def leaves_if_empty(x, y):
    """A rank without examples takes no part."""
    return _trained(x, y, _mean) if len(x) else nn.Linear(4, 1).to(x.device)


def drops_last_rank(x, y):
    """The last rank's examples do not count."""
    last = dist.get_world_size() > 1 and dist.get_rank() == dist.get_world_size() - 1
    return _trained(x[:0] if last else x, y[:0] if last else y, _mean)


def halves(x, y):
    """It divides the gradient by two where it should divide by the number of ranks."""
    ranks = dist.get_world_size()

    def join(grad, examples, *_):
        _mean(grad, examples)
        grad *= ranks / min(ranks, 2)

    return _trained(x, y, join)


RIGHT = (by_hand, by_ddp)
FAULTY = (
    sums,
    own_seeds,
    mean_of_means,
    last_bias,
    mixed_chunks,
    last_rank_stays,
    leaves_if_empty,
    drops_last_rank,
    halves,
)


@check
def accepts(function):
    """``function(train)``: whether a program trains on several ranks as on one."""
    need_gpus(4)
    for train in RIGHT:
        verdict, ended = _verdict(function, train, "a program that is right")
        if not verdict:
            why = (
                "compare with a tolerance, as ranks add in another order than one, and look for an error of the test's "
                "own that it takes for the program's"
                if ended
                else "no rank has run it to its end, so your test takes an error of its own for the program's: print it"
            )
            raise Wrong(f"your test refuses a program that is right: {why}")
    missed = [train for train in FAULTY if _verdict(function, train, "a faulty program")[0]]
    told = scored("accepts", len(missed), 0, f"of {len(FAULTY)} faulty programs accepted", "d")
    if missed:
        fault = missed[0].__doc__.rstrip(".")
        raise Wrong(f"{told}; one of them: {fault[0].lower()}{fault[1:]}")
    return f"it tells right programs from faulty ones: {told}"


def _verdict(function, train, given):
    """Return what the reader's test says of a program, and how often this ended; all programs have the same name."""
    ended = []

    def handed(x, y):
        model = train(x, y)
        ended.append(len(x))
        return model

    handed.__name__ = handed.__qualname__ = "train"
    verdict = attempt(function, handed, given=given)
    if isinstance(verdict, np.bool_) or (isinstance(verdict, torch.Tensor) and verdict.numel() == 1):
        verdict = bool(verdict)
    if not isinstance(verdict, bool):
        raise Wrong(f"{given}: expected True or False, got {brief(verdict)}")
    return verdict, len(ended)
