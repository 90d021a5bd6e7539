"""Checks of the exercises on where tensors live: moving them, and computing without making the host wait."""

from collections import namedtuple

import torch

from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many, must_refuse, need_gpus, typed
from d2lmini.checks.traced import attempt_traced


@check
def move(function):
    """``function(batch, device)``: the tensors of nested lists, tuples and dicts on `device`, none copied in vain."""
    need_gpus(clock=False)
    for device in map(torch.device, ("cpu", "sim:0", "sim:1")):
        for name, batch in _batches().items():
            got = attempt(function, batch, device, given=f"{name}, to {device}")
            _compare(f"{name}, to {device}", batch, got, device)
    return "every tensor is on the device, the structure is the same, and what was there already was not copied"


def _batches():
    x, y = torch.arange(6.0).reshape(2, 3), torch.arange(2)
    wraps = {
        "a list": list,
        "a tuple": tuple,
        "a dict": lambda items: dict(zip(("image", "label"), items)),
        "a named tuple": namedtuple("Example", "image label")._make,
    }
    batches = {
        "a tensor": x,
        "a tuple of two tensors": (x, y),
        "a named tuple": wraps["a named tuple"]([x, y]),
        "a tensor on sim:0 and one on the CPU": [x.to("sim:0"), y],
        "a dict with a list inside": {"image": x, "boxes": [y, y], "name": "cat", "index": 7},
        "a list of dicts": [{"boxes": x, "label": "cat"}, {"boxes": y, "label": None}],
        "an empty list": [],
        "a dict with empty containers": {"image": x, "boxes": [], "sizes": [(), {}]},
    }
    deep = [x, y]
    for outer, wrap in wraps.items():
        for inner, wrap_inner in wraps.items():
            batches[f"{outer}, inside it {inner} and a text"] = wrap([wrap_inner([x, y]), "cat"])
        deep = wrap([y, deep])
    return {**batches, "five containers, one inside the other": deep}


def _compare(given, batch, got, device):
    """Raise Wrong unless `got` is `batch` with its tensors on `device`."""
    kind = torch.Tensor if isinstance(batch, torch.Tensor) else type(batch)
    if not isinstance(got, kind):
        raise Wrong(f"{given}: expected the type {kind.__name__}, got {typed(got)}")
    if kind is torch.Tensor:
        _compare_tensor(given, batch, got, device)
    elif isinstance(batch, dict):
        if list(got) != list(batch):
            raise Wrong(f"{given}: expected the keys {brief(list(batch))}, got {brief(list(got))}")
        for key in batch:
            _compare(f"{given}: under {key!r}", batch[key], got[key], device)
    elif isinstance(batch, (list, tuple)):
        if len(got) != len(batch):
            raise Wrong(f"{given}: expected {len(batch)} items, got {len(got)}")
        for i, (want, item) in enumerate(zip(batch, got)):
            _compare(f"{given}: item {i}", want, item, device)
    elif got != batch:
        raise Wrong(f"{given}: expected {brief(batch)} as it was, got {brief(got)}")


def _compare_tensor(given, batch, got, device):
    if got.device != device:
        raise Wrong(f"{given}: the tensor is on {got.device}: use .to(device)")
    if batch.device == device and got is not batch:
        raise Wrong(f"{given}: the tensor was there already, but you made a copy; .to(device) returns it as it is")
    if got.shape != batch.shape or got.dtype != batch.dtype:
        raise Wrong(f"{given}: expected {list(batch.shape)}, {batch.dtype}; got {list(got.shape)}, {got.dtype}")
    if off := first_off("the tensor", batch.cpu(), got.cpu(), rtol=0, atol=0):
        raise Wrong(f"{given}: {off}")


@check
def product_norms(function):
    """``function(matrices)``: the norms of each matrix times itself, all of it on their device, no wait of the host."""
    need_gpus()
    for device, rows in (("sim:0", [4]), ("sim:1", [4, 2, 3]), ("sim:0", [3] * 5)):
        _try_norms(function, rows, device)
    return "the norms are right and stay on the device, and the host never waited"


def _try_norms(function, rows, device):
    given = f"matrices of {', '.join(map(str, rows))} rows on {device}"
    cpu = [torch.arange(float(n * n)).reshape(n, n) + i for i, n in enumerate(rows)]
    matrices = [matrix.to(device) for matrix in cpu]
    got, spans = attempt_traced(function, matrices, given=given)
    if not isinstance(got, torch.Tensor):
        raise Wrong(f"{given}: expected one tensor with all norms, got {brief(got)}: torch.stack puts tensors together")
    if got.device != matrices[0].device:
        raise Wrong(f"{given}: the norms are on {got.device}; leave them on {device}")
    want = torch.stack([(matrix @ matrix).norm() for matrix in cpu])
    if got.shape != want.shape or not torch.allclose(got.cpu().to(want.dtype), want):
        raise Wrong(f"{given}: expected the norms {brief(want)}, got {brief(got.cpu())}")
    waits = sum(span.kind == "wait" for span in spans)
    if waits:
        raise Wrong(f"{given}: the host waited {many(waits, 'time')}; .item(), float(), print and .cpu() make it wait")
    if any(span.kind == "copy" for span in spans):
        raise Wrong(f"{given}: numbers left the device, or came to it; compute on {device} alone")


@check
def committed_sum(function):
    """``function(x, y)``: JAX's sum of two pairs (tensor, committed), as such a pair, and no copy in vain."""
    need_gpus()
    cases = (
        ("sim:0", True, "sim:0", True, "sim:0"),
        ("sim:0", False, "sim:1", True, "sim:1"),
        ("sim:1", True, "sim:0", False, "sim:1"),
        ("sim:0", False, "sim:0", False, "sim:0"),
        ("cpu", False, "sim:1", True, "sim:1"),
        ("cpu", True, "sim:1", False, "cpu"),
    )
    for a, a_committed, b, b_committed, want in cases:
        _try_sum(function, (a, a_committed), (b, b_committed), want)
    for a, b in (("sim:0", "sim:1"), ("cpu", "sim:0")):
        x, y = ((torch.ones(3).to(device), True) for device in (a, b))
        must_refuse(function, x, y, given=f"committed to {a}, and committed to {b}", naming=(a, b))
    return "a free operand follows a committed one, two that are committed elsewhere are refused"


def _try_sum(function, first, second, want):
    named = [f"{'committed to' if committed else 'free, on'} {device}" for device, committed in (first, second)]
    given = ", and ".join(named)
    pairs = [
        (torch.arange(3.0).to(device) + 10 * i, committed) for i, (device, committed) in enumerate((first, second))
    ]
    answer, spans = attempt_traced(function, *pairs, given=given)
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not isinstance(answer[0], torch.Tensor):
        raise Wrong(f"{given}: expected a pair (tensor, whether it is committed), got {typed(answer)}")
    total, committed = answer
    if total.device != torch.device(want):
        raise Wrong(f"{given}: expected the sum on {want}, it is on {total.device}")
    if total.cpu().tolist() != [10.0, 12.0, 14.0]:
        raise Wrong(f"{given}: expected the numbers [10, 12, 14], got {brief(total.cpu())}")
    if bool(committed) != (first[1] or second[1]):
        raise Wrong(f"{given}: the sum is committed when an operand is, and only then; got {typed(committed)}")
    _, needed = attempt_traced(lambda x, y: (x[0].to(want), y[0].to(want)), *pairs, given=given)
    copied, least = (sum(span.nbytes for span in every if span.kind == "copy") for every in (spans, needed))
    if copied > least:
        moves = "only the free operand has to move" if least else "both operands are there already"
        raise Wrong(f"{given}: the sum is right, but more is copied than needed: {moves}")
