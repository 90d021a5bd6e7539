"""Checks of the exercises on copies: packing small ones, prefetching batches, and fitting the line through their times.

The first two watch the simulated clock: what was copied when, and whether the work on a batch waited for its copy.
"""

from unittest import mock

import torch

from d2lmini import sim
from d2lmini.checks.mechanism import Wrong, attempt, brief, check, many
from d2lmini.sim.tensor import SimTensor

FEATURES = 256


@check
def pack(function):
    """``function(tensors, device)``: the tensors of a list on `device`, in their shapes, after a single copy."""
    _need_clock()
    shapes = {
        "3 tensors": [(2, 3), (4,), (1, 5, 2)],
        "1 tensor": [(3,)],
        "4 tensors, one empty and one a single number": [(2,), (0, 3), (), (2, 2)],
        "50 tensors": [(i % 4 + 1, 3) for i in range(50)],
    }
    for name, wanted in shapes.items():
        flat = torch.arange(1.0, 1 + sum(map(_count, wanted))).split([_count(shape) for shape in wanted])
        _try_pack(function, name, [piece.reshape(shape) for piece, shape in zip(flat, wanted)], "sim:0")
    _try_pack(function, "2 tensors, the first one transposed", [torch.arange(6.0).view(2, 3).T, torch.ones(2)], "sim:1")
    return "every tensor arrived in its shape, and there was one copy from the host, however many tensors"


def _count(shape):
    return torch.Size(shape).numel()


def _try_pack(function, name, tensors, device):
    given, device = f"{name}, to {device}", torch.device(device)
    torch.sim.synchronize(device)
    spans = []

    def watched(tensors):  # only the reader's code: comparing what came back copies too
        with sim.trace() as trace:
            result = function(tensors, device)
        spans.extend(trace.spans)
        return result

    got = attempt(watched, tensors, given=given)
    if not isinstance(got, (list, tuple)) or len(got) != len(tensors):
        raise Wrong(f"{given}: expected a list of {many(len(tensors), 'tensor')}, got {brief(got)}")
    for i, (want, one) in enumerate(zip(tensors, got)):
        if not isinstance(one, torch.Tensor) or one.device != device:
            raise Wrong(f"{given}: tensor {i} is not on {device}, you returned {getattr(one, 'device', brief(one))}")
        if one.shape != want.shape or one.dtype != want.dtype:
            raise Wrong(f"{given}: tensor {i} has shape {list(one.shape)}, {one.dtype}; "
                        f"expected {list(want.shape)}, {want.dtype}")  # fmt: skip
        if not torch.equal(one.cpu(), want):
            raise Wrong(f"{given}: tensor {i} should hold {brief(want)}, it holds {brief(one.cpu())}")
    copies = [span for span in spans if span.kind == "copy" and span.place == f"PCIe gpu{device.index} in"]
    other = [span.place for span in spans if span.kind == "copy" and "switch" not in span.place and span not in copies]
    if len(copies) != 1 or other:
        elsewhere = f" and others over {', '.join(sorted(set(other)))}" if other else ""
        raise Wrong(f"{given}: expected 1 copy from the host to {device}, counted {len(copies)}{elsewhere}")
    total = sum(tensor.nbytes for tensor in tensors)
    if copies[0].nbytes != total:
        raise Wrong(f"{given}: the tensors hold {total} bytes, but {copies[0].nbytes} were copied")


@check
def prefetch(function):
    """``function(batches, device)``: yields the batches on `device`, each copied while the one before is in use."""
    _need_clock()
    for count in (0, 1, 2, 6):
        _try_prefetch(function, count)
    return "the batches come in order, each copied in a second stream while the one before it is in use"


def _try_prefetch(function, count):
    given = many(count, "batch").replace("batchs", "batches")
    rows = [64 if i + 1 == count > 1 else 128 for i in range(count)]  # the last batch is smaller, as it often is
    batches = [(torch.rand(n, FEATURES) + i).pin_memory() for i, n in enumerate(rows)]
    weight = torch.ones(FEATURES, FEATURES, device="sim:0")
    products, seen, recorded = _products_a_batch(weight), [], []

    def use(batch):
        if not isinstance(batch, torch.Tensor) or batch.device != weight.device:
            raise Wrong(f"{given}: batch {len(seen)} should be on sim:0, got {brief(batch)}")
        seen.append(batch.clone())
        for _ in range(products):
            batch @ weight

    def watched(batches):
        with sim.trace() as trace, mock.patch.object(SimTensor, "record_stream", lambda *call: recorded.append(call)):
            for batch in function(batches, weight.device):
                use(batch)
        return trace

    before = torch.sim.current_stream()
    torch.sim.synchronize()
    trace = attempt(watched, batches, given=given)
    if torch.sim.current_stream() != before:
        torch.sim.set_stream(before)
        raise Wrong(f"{given}: your code left another stream current; use `with module.stream(...)` around the copy")
    _compare_batches(given, batches, seen)
    copies = [s for s in trace.spans if s.kind == "copy" and s.place == "PCIe gpu0 in"]
    used = [s for s in trace.spans if s.kind == "operation" and s.name == "mm"]
    work = [used[i : i + products] for i in range(0, len(used), products)]
    _judge_times(given, copies, work, sum(s.kind == "wait" for s in trace.spans), len(recorded) >= count)


def _products_a_batch(weight):
    """Return how many products with `weight` take about as long as five copies of a batch, on the GPU simulated."""
    torch.sim.synchronize()
    batch = torch.ones(128, FEATURES).pin_memory()
    with sim.trace() as trace:
        batch.to("sim:0", non_blocking=True) @ weight
    times = {span.kind: span.end - span.start for span in trace.spans}
    return -(-5 * times["copy"] // times["operation"])


def _compare_batches(given, batches, seen):
    if len(seen) != len(batches):
        raise Wrong(f"{given}: expected {len(batches)} to be yielded, got {len(seen)}")
    for i, (want, got) in enumerate(zip(batches, seen)):
        if got.shape != want.shape or not torch.equal(got.cpu(), want):
            raise Wrong(f"{given}: what came in place {i} is not batch {i}")


def _judge_times(given, copies, work, waits, recorded):
    """Raise Wrong unless work waits for its copy, copies run beside work, and no memory is overwritten in use."""
    if len(copies) != len(work):
        raise Wrong(f"{given}: expected a copy each, counted {len(copies)}")
    if waits:
        raise Wrong(f"{given}: the host waited {waits} times; non_blocking=True copies without a wait, and an event or "
                    "wait_stream lets one stream wait for another")  # fmt: skip
    for i, (copy, products) in enumerate(zip(copies, work)):
        if products[0].start < copy.end:
            raise Wrong(f"{given}: the work on batch {i} began before its copy had ended: let the current stream wait")
        if i and not (copy.start < work[i - 1][-1].end and work[i - 1][0].start < copy.end):
            raise Wrong(f"{given}: batch {i} was not copied while batch {i - 1} was in use, but before or after: "
                        "ask for the copy early, and in a second stream")  # fmt: skip
        if i > 2 and not recorded and copy.start < work[i - 3][-1].end:
            raise Wrong(f"{given}: the copy of batch {i} began while batch {i - 3} was in use, whose memory it may be "
                        "given: let the copying stream wait for the current one")  # fmt: skip


@check
def fit_line(function):
    """``function(sizes, seconds)``: (alpha, beta) of seconds = alpha + sizes ÷ beta, where small sizes count too."""
    sizes = [2**k for k in range(10, 29, 2)]
    for alpha, beta in ((1e-5, 1e10), (1e-3, 1e8), (2e-6, 3e11)):
        exact = [alpha + n / beta for n in sizes]
        _try_fit(function, "exact times", sizes, exact, alpha, beta, 1e-4)
        for sign in (1, -1):
            noisy = [t * (1 + sign * 0.05 * (-1) ** i) for i, t in enumerate(exact)]
            _try_fit(function, "times that are 5 % too long and too short by turns", sizes, noisy, alpha, beta, 0.06)
    return "alpha and beta are found in exact times, and hardly moved by noise in proportion to the time"


def _try_fit(function, name, sizes, seconds, alpha, beta, tolerance):
    given = f"{name} made with alpha = {alpha:g} s, beta = {beta:g} bytes/s"
    got = attempt(function, list(sizes), list(seconds), given=given)
    if not isinstance(got, (list, tuple)) or len(got) != 2:
        raise Wrong(f"{given}: expected the pair (alpha, beta), got {brief(got)}")
    for what, unit, want, found in zip(("alpha", "beta"), ("s", "bytes/s"), (alpha, beta), map(float, got)):
        if not abs(found - want) <= tolerance * want:
            raise Wrong(f"{given}: expected {what} = {want:g} {unit} within {tolerance:.2%}, got {found:g}")


def _need_clock():
    if not sim.has_clock() or torch.sim.device_count() < 2:
        sim.enable(2)
