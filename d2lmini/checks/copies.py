"""Checks of the exercises on copies: packing small ones, prefetching batches, and fitting the line through their times.

The first two watch a simulated clock: what was copied when, and whether the work on a batch waited for its copy. It is
the clock of a slow GPU, whatever machine the reader simulates, so that the work on a batch takes longer than asking for
it, and the host runs ahead of the GPU: only then is it seen who forgot to wait.
"""

import contextlib
from itertools import islice

import torch

import simgpu
from d2lmini.checks.differing import first_off
from d2lmini.checks.mechanism import Wrong, ask, attempt, brief, check, listed, many, need_gpus, pair, scored
from d2lmini.checks.traced import Watch, attempt_traced, uncovered_ms
from simgpu.hardware import machines

ROWS, FEATURES, OUTPUTS = 256, 1024, 128
PRODUCTS = 6  # on a batch; on the slow GPU they take much longer than a copy of one, and than asking for them
BOOK_MS = 0.09  # of the copies of 8 batches are exposed with the book's answer
AHEAD = 2  # batches that may wait on the device for their turn


@check
def pack(function):
    """``function(tensors, device)``: the tensors of a list on `device`, in their shapes, after a single copy."""
    shapes = {
        "3 tensors": [(2, 3), (4,), (1, 5, 2)],
        "1 tensor": [(3,)],
        "4 tensors, one empty and one a single number": [(2,), (0, 3), (), (2, 2)],
        "50 tensors": [(i % 4 + 1, 3) for i in range(50)],
    }
    with _slow_gpus():
        for name, wanted in shapes.items():
            flat = torch.arange(1.0, 1 + sum(map(_count, wanted))).split([_count(shape) for shape in wanted])
            _try_pack(function, name, [piece.reshape(shape) for piece, shape in zip(flat, wanted)], "sim:0")
        turned = [torch.arange(6.0, dtype=torch.float64).view(2, 3).T / 3, torch.ones(2, dtype=torch.float64)]
        _try_pack(function, "2 tensors, the first one transposed", turned, "sim:1")
        _try_pack(function, "2 tensors of integers", [torch.arange(6).view(2, 3), torch.tensor([2**53 + 1])], "sim:0")
    return "every tensor arrived in its shape, and there was one copy from the host, however many tensors"


def _count(shape):
    return torch.Size(shape).numel()


def _try_pack(function, name, tensors, device):
    given, device = f"{name}, to {device}", torch.device(device)
    got, spans = attempt_traced(lambda tensors: function(tensors, device), tensors, given=given)
    arrived = listed(got)
    if arrived is None or len(arrived) != len(tensors):
        raise Wrong(f"{given}: expected a list of {many(len(tensors), 'tensor')}, got {brief(got)}")
    for i, (want, one) in enumerate(zip(tensors, arrived)):
        if not isinstance(one, torch.Tensor) or one.device != device:
            raise Wrong(f"{given}: tensor {i} is not on {device}, you returned {getattr(one, 'device', brief(one))}")
        if one.shape != want.shape or one.dtype != want.dtype:
            raise Wrong(
                f"{given}: tensor {i} has shape {list(one.shape)}, {one.dtype}; "
                f"expected {list(want.shape)}, {want.dtype}"
            )
        if off := first_off(f"tensor {i}", want, one.cpu(), rtol=0, atol=0):
            raise Wrong(f"{given}: {off}")
    copies = [span for span in spans if span.kind == "copy"]
    if len(copies) != 1:
        raise Wrong(f"{given}: expected 1 copy, from the host to {device}, counted {len(copies)}")
    total = sum(tensor.nbytes for tensor in tensors)
    if copies[0].nbytes != total:
        raise Wrong(f"{given}: the tensors hold {total} bytes, but {copies[0].nbytes} were copied")


@check
def prefetch(function):
    """``function(batches, device)``: yields the batches on `device`, each copied while the one before is in use.

    A batch's memory may be written again only when the work on it has ended, whether the function writes it, into a
    buffer that was yielded, or the allocator gives it away: it knows the stream that asked for the memory, and the
    others named to `record_stream`. At most two batches may wait on the device for their turn, and as many be kept
    there after it.
    """
    with _slow_gpus():
        tries = ((0, "sim:0"), (1, "sim:0"), (8, "sim:0"), (2, "sim:0"), (3, "sim:1"))
        exposed = [_try_prefetch(function, count, torch.device(device)) for count, device in tries]
    told = scored("prefetch", exposed[2], BOOK_MS, "ms of their copies are exposed")
    return f"8 batches come in order, each copied in a second stream while one before it is in use; {told}"


def _try_prefetch(function, count, device):
    given = many(count, "batch", "es") + " to sim:1, while sim:0 is the current device" * device.index
    rows = [ROWS // 2 if i + 1 == count > 1 else ROWS for i in range(count)]  # the last is smaller, as it often is
    batches = [(torch.rand(n, FEATURES) + i).pin_memory() for i, n in enumerate(rows)]
    weight = torch.ones(FEATURES, OUTPUTS, device=device)
    torch.sim.synchronize(device)
    before = torch.sim.current_stream(device)

    def watched(batches):
        with simgpu.trace() as trace:
            watch = Watch(trace, before)
            for batch in islice(function(batches, device), len(batches) + 1):
                if not isinstance(batch, torch.Tensor) or batch.device != device:
                    return watch, brief(batch)
                watch.yielded(batch)
                for _ in range(PRODUCTS):
                    batch @ weight
        return watch, None

    watch, stray = attempt(watched, batches, given=given)
    if torch.sim.current_stream(device) != before:
        raise Wrong(f"{given}: your code left another stream current; use `with module.stream(...)` around the copy")
    if stray and not batches:
        raise Wrong(f"{given}: nothing should be yielded, got {stray}")
    if stray:
        raise Wrong(f"{given}: batch {len(watch.seen)} should be on {device}, got {stray}")
    _compare_batches(given, batches, watch.seen)
    return _judge_times(given, watch)


def _compare_batches(given, batches, seen):
    if len(seen) != len(batches):
        raise Wrong(f"{given}: expected {len(batches)} to be yielded, got {len(seen)}")
    for i, (want, got) in enumerate(zip(batches, seen)):
        if got.shape != want.shape or not torch.equal(got.cpu(), want):
            raise Wrong(f"{given}: what came in place {i} is not batch {i}")


def _judge_times(given, watch):
    """Return how many ms of the copies are exposed.

    Raises:
        Wrong: Work does not wait for its copy, a copy runs beside no work, or memory is overwritten in use.
    """
    spans = watch.trace.spans
    copies = [s for s in spans if s.kind == "copy"]
    used = [s for s in spans if s.kind == "operation" and s.name == "mm"]
    work = [used[i : i + PRODUCTS] for i in range(0, len(used), PRODUCTS)]
    exposed = uncovered_ms(copies, [s for s in spans if s.kind == "operation"])
    waits = sum(s.kind == "wait" for s in spans)
    if len(copies) != len(work):
        raise Wrong(f"{given}: expected one copy for each batch, counted {len(copies)}")
    if waits:
        raise Wrong(
            f"{given}: the host waited {many(waits, 'time')}; non_blocking=True copies without a wait, and an "
            "event or wait_stream lets one stream wait for another"
        )
    for i, (copy, products) in enumerate(zip(copies, work)):
        if products[0].start < copy.end:
            raise Wrong(f"{given}: the work on batch {i} began before its copy had ended: let the current stream wait")
        if i and not any(w[0].start < copy.end and copy.start < w[-1].end for w in work[:i]):
            raise Wrong(
                f"{given}: batch {i} was not copied while one before it was in use, but before or after: {exposed:.2f} "
                f"ms of the copies are exposed (the book's answer: {BOOK_MS}); ask for a copy early, in a second "
                "stream, and let work wait for its own copy only"
            )
    for i, copy in enumerate(copies):
        _judge_memory(given, watch, i, [j for j in range(i) if copy.start < work[j][-1].end])
    return exposed


def _judge_memory(given, watch, i, in_use):
    """Raise Wrong if the copy of batch i may write to memory `in_use`, or too many batches were copied before."""
    for j in in_use:
        if how := watch.overwritten(j, i):
            raise Wrong(
                f"{given}: the copy of batch {i} began while batch {j} was in use, {how}: let the copying "
                f"stream wait for the work on batch {j}, or call record_stream on each batch"
            )
    if watch.asked[i] > i + 1 + AHEAD:
        raise Wrong(
            f"{given}: {watch.asked[i]} copies had been asked for when batch {i} was yielded; a whole data set "
            f"does not fit, so let at most {AHEAD} batches wait for their turn"
        )
    if watch.kept[i] > 1 + AHEAD:
        raise Wrong(
            f"{given}: when batch {i} was yielded, the memory of {watch.kept[i]} was still taken; a whole data "
            "set does not fit, so keep no batch that the caller is done with"
        )


@check
def fit_line(function):
    """``function(sizes, seconds)``: (alpha, beta) of seconds = alpha + sizes ÷ beta, where small sizes count too."""
    # alpha * beta stays far below 2**23 / 19: there a least-squares solver in float32 drops the smaller column.
    for alpha, beta, least in ((1e-5, 1e10, 1024), (1e-3, 1e8, 1024), (2e-6, 5e10, 1500)):
        sizes = [least * 2**k for k in range(19)]
        exact = [alpha + n / beta for n in sizes]
        _try_fit(function, "exact times", sizes, exact, alpha, beta, 1e-3)
        for sign in (1, -1):  # by multiples of the golden ratio: as if by chance, and the same in each run
            noisy = [t * (1 + sign * (0.1 * (i * 0.618034 % 1) - 0.05)) for i, t in enumerate(exact)]
            _try_fit(function, "times that are up to 5 % too long or too short,", sizes, noisy, alpha, beta, 0.03)
        for i, size in enumerate(sizes):  # no size must outweigh the others
            late = [t * (1.1 if i == j else 1) for j, t in enumerate(exact)]
            name = f"exact times but for {size:,} bytes, 10 % too long,"
            _try_fit(function, name, sizes, late, alpha, beta, 0.02)
    return "alpha and beta are found in exact times, and hardly moved by noise in proportion to the time"


def _try_fit(function, name, sizes, seconds, alpha, beta, tolerance):
    given = f"{name} made with alpha = {alpha:g} s, beta = {beta:g} bytes/s"
    both = ask(function, list(sizes), list(seconds), given=given, what="the pair (alpha, beta)", read=pair)
    for what, unit, want, found in zip(("alpha", "beta"), ("s", "bytes/s"), (alpha, beta), map(float, both)):
        if not abs(found - want) <= tolerance * want:
            raise Wrong(f"{given}: expected {what} = {want:g} {unit} within {tolerance:.2%}, got {found:g}")


@contextlib.contextmanager
def _slow_gpus():
    """Let the simulated GPUs, at least 2, have the clock of slow ones, which a host without Python keeps busy.

    Afterwards the reader's own goes on.
    """
    need_gpus(clock=False)
    slow = machines.build(torch.sim.device_count(), "GTX 580", "PCIe3-x16")
    with simgpu.use_clock(simgpu.Clock(slow, mode="compiled")), torch.sim.device(0):
        yield
