"""The check of the lab on a slow loader: a training loop whose GPU must not wait for its data, judged by the clock."""

import functools

import torch

from d2lmini.checks.mechanism import Wrong, attempt, check, many, need_gpus, reals, scored, typed
from d2lmini.checks.traced import Watch, must_be_read, uncovered_ms
from d2lmini.measuring.feeding import BATCHES, Step, Store, rehearse

IDLE, BOOK_MS, LIMIT_MS = 0.1, 11.21, 12.5  # the starter is idle for 61 % of 27 ms; the limit: see clipped_mean
FEW = 6  # batches of the run in which each batch's memory is watched


@check
def repair_loader(function):
    """``function(loader, transform, step, device)``: the losses of all batches, on a GPU that hardly ever waits."""
    need_gpus()
    _judge_memory(*_try(function, FEW))
    trace, _ = _try(function, BATCHES)
    ms, idle = trace.seconds * 1e3, 1 - trace.busy_seconds()["gpu0"] / trace.seconds
    told = f"the GPU is idle {idle:.1%} of {scored('repair_loader', ms, BOOK_MS, 'ms')}"
    if round(idle, 3) >= IDLE:
        copies = uncovered_ms(_arrivals(trace), [s for s in trace.spans if s.kind == "operation"]) / ms
        waits = f"it waits {copies:.1%} for copies and {idle - copies:.1%} for the loader or the host"
        raise Wrong(f"the losses are right, but {told}: {waits}; bring it below {IDLE:.0%}")
    if ms > LIMIT_MS:
        raise Wrong(f"the losses are right, but {told}: longer than {LIMIT_MS} ms; do no work that the task has not")
    return f"the losses are right, and {told}"


def _try(function, count):
    """Return the trace of a run, whose losses are compared with those on the CPU, and who uses which memory when."""
    given, watches = many(count, "batch", "es"), []

    def wrap(step, trace):
        watch = Watch(trace, torch.sim.current_stream("sim:0"))
        watches.append(watch)

        def watched(X):
            if X.dtype != torch.float32 or X.device != step.weight.device:
                raise TypeError(f"step expected float32 on {step.weight.device}, got {X.dtype} on {X.device}")
            if count == FEW:
                watch.yielded(X)
            return step(X)

        return watched

    losses, trace = attempt(lambda: rehearse(function, count, wrap), given=given)
    must_be_read(losses, given, "the losses")
    got, want = reals(losses), _losses(count)
    if got is None:
        raise Wrong(f"{given}: expected a list of numbers, the losses, got {typed(losses)}")
    if len(got) != count:
        raise Wrong(f"{given}: expected {many(count, 'loss', 'es')}, got {len(got)}: train on each batch once")
    for i, (loss, right) in enumerate(zip(got, want)):
        if not abs(loss - right) <= 1e-3 * right:
            raise Wrong(
                f"{given}: expected the loss {right:.5f} in step {i}, got {loss:.5f}: each batch once, in order"
            )
    _judge_races(given, trace, count)
    return trace, watches[0]


@functools.cache
def _losses(count):
    """Return the losses of the batches in their order, computed on the CPU."""
    store, step = Store(count), Step("cpu")
    return [step(batch.float() / 255 - 0.5).item() for batch in store.batches]


def _arrivals(trace):
    return [span for span in trace.spans if span.kind == "copy" and span.place.endswith(" in")]


def _judge_races(given, trace, count):
    """Raise Wrong if a step begins before its batch has arrived; told where each batch is one copy."""
    copies, products = _arrivals(trace), [s for s in trace.spans if s.kind == "operation" and s.name == "mm"]
    if len(copies) == count and len(products) == 2 * count:  # a step has two
        for i, (copy, product) in enumerate(zip(copies, products[::2])):
            if product.start < copy.end:
                raise Wrong(f"{given}: step {i} began before its batch had arrived: let the current stream wait")


def _judge_memory(trace, watch):
    """Raise Wrong if a batch's memory, made in another stream, may be written while its step still reads it."""
    copies = _arrivals(trace)
    ends = [s.end for s in trace.spans if s.kind == "operation" and s.name == "sub_"]  # of the steps
    for i in range(min(len(copies), len(ends))):
        for j in (j for j in range(i) if copies[i].start < ends[j] and watch.memory[j].allocated != watch.stream):
            if how := watch.overwritten(j, i):
                other = ", or call `X.record_stream` with the stream of the steps" * how.startswith("whose memory")
                raise Wrong(
                    f"{many(FEW, 'batch', 'es')}: the copy of batch {i} began while step {j} used its own, {how}: let "
                    f"the copying stream wait for the steps so far{other}"
                )
