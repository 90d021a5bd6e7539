"""An all-reduce carried by a schedule: messages in steps, given as data, in place of the built-in algorithms.

A schedule has `chunks`, into how many a buffer is cut, and `steps`: lists of messages (src, dst, start, stop, op), by
which chunks `start` to `stop` − 1 of rank src's buffer go to rank dst, to be combined there (op "reduce") or to replace
what is there ("copy"). All messages of a step are sent before any is received.
"""

from simgpu.ranks import reductions


def run(schedule, calls):
    """Carry out the all-reduce of all ranks' calls."""
    ops = [call.op for call in calls]
    for place, first in enumerate(calls[0].sent):
        buffers = [reductions.begin(op, call.sent[place].flatten(), len(calls)) for op, call in zip(ops, calls)]
        _carry(schedule, ops, buffers)
        for call, op, buffer in zip(calls, ops, buffers):
            total = reductions.end(op, buffer, first.dtype, len(calls))
            call.received[place].copy_(total.view(first.shape))


def _carry(schedule, ops, buffers):
    cut = _cuts(len(buffers[0]), schedule.chunks)
    for sends in schedule.steps:
        parts = [buffers[src][cut[start] : cut[stop]].clone() for src, _, start, stop, _ in sends]
        for (_, dst, start, stop, op), part in zip(sends, parts):
            mine = buffers[dst][cut[start] : cut[stop]]
            if op == "reduce":
                reductions.fold(ops[dst], mine, part)
            else:
                mine.copy_(part)


def sizes(schedule, nbytes):
    """Yield for each step its messages as (from, to, bytes)."""
    cut = _cuts(nbytes, schedule.chunks)
    for sends in schedule.steps:
        yield [(src, dst, cut[stop] - cut[start]) for src, dst, start, stop, _ in sends]


def _cuts(n, chunks):
    """Return where n things are cut into chunks; the first ones have one more where they cannot be equal."""
    return [i * (n // chunks) + min(i, n % chunks) for i in range(chunks + 1)]
