"""What a reader's function does on simulated GPUs and ranks: copies, waits, bytes sent, who uses a batch's memory."""

import weakref

import torch

import simgpu
from d2lmini.checks.lines import line_of, said
from d2lmini.checks.mechanism import Wrong, attempt, called, need_gpus

RANKS = 4  # as many GPUs serve most checks: they need not be made anew for each


def run_on_ranks(program, ranks, given, *args, numbers=True, **options):
    """Run ``program(rank, *args)``, which calls the reader's function, on simulated ranks.

    Args:
        program: What a rank runs.
        ranks: How many.
        given: What the reader's function is given, in words.
        args: More arguments of the program.
        numbers: Whether the GPUs compute; else their tensors have shapes alone.
        options: More options of `simgpu.spawn`.

    Returns:
        What each rank returned, and the spans of what all of them sent.

    Raises:
        Wrong: A rank failed, or the ranks' calls do not fit together.
    """
    need_gpus(max(RANKS, ranks), numbers=numbers)
    with simgpu.trace() as trace:
        try:
            results = simgpu.spawn(program, args, nprocs=ranks, **options)
        except (simgpu.RankError, simgpu.DeadlockError, simgpu.MismatchError) as error:
            cause = error.__cause__  # of a full GPU a lab asks for the line
            line = "" if cause is None or isinstance(cause, torch.OutOfMemoryError) else line_of(cause)
            raise Wrong(f"{given}: {said(str(error).splitlines()[0])}{line}") from error
    return results, [span for span in trace.spans if span.kind == "communication"]


def must_be_read(answer, given, what):
    """Raise Wrong if numbers are left on a GPU: to read them is part of the work, and may make the host wait.

    Args:
        answer: A tensor, or a list that may hold tensors.
        given: What the reader's function was given, in words.
        what: What the answer is, in words.
    """
    items = answer if isinstance(answer, list | tuple) else [answer]
    place = next((t.device for t in items if isinstance(t, torch.Tensor) and t.device.type != "cpu"), None)
    if place:
        raise Wrong(
            f"{given}: expected {what} as numbers, got {'a tensor' if items is not answer else 'tensors'} on {place}: "
            "read them when training is over, with `tolist` or `item`"
        )


def uncovered_ms(spans, operations):
    """Return how many ms of these spans, copies or messages, no operation hides; operations follow one another."""
    hidden = sum(max(0, min(a.end_s, b.end_s) - max(a.start_s, b.start_s)) for a in spans for b in operations)
    return (sum(span.seconds for span in spans) - hidden) * 1e3


def attempt_traced(function, *inputs, given):
    """Return what `attempt` returns, and the spans of the reader's code alone: comparing its inputs copies too."""
    spans = []

    def watched(*inputs):
        with simgpu.trace() as trace:
            result = called(function, *inputs)
        spans.extend(trace.spans)
        return result

    for device in range(torch.sim.device_count()):
        torch.sim.synchronize(device)
    return attempt(watched, *inputs, given=given), spans


class Watch:
    """What happens to each batch on the device, of work in `stream`: yielded, named to `record_stream`, given up.

    Memory goes back to the stream that allocated it, and without a wait for any other that was not recorded.
    """

    def __init__(self, trace, stream):
        self.trace, self.stream = trace, stream
        self.seen, self.places, self.asked, self.memory, self.kept, self.freed = [], [], [], [], [], {}

    def yielded(self, batch):
        """Note where a batch lies, how many copies were asked for by now, and when its memory is given up."""
        i = len(self.seen)
        self.places.append(range(batch.data_ptr(), batch.data_ptr() + batch.nbytes))
        self.asked.append(self._copies())
        self.memory.append(simgpu.memory_streams(batch))
        weakref.finalize(_owner(batch), lambda: self.freed.setdefault(i, self._copies()))
        self.kept.append(len({place.start for j, place in enumerate(self.places) if j not in self.freed}))
        self.seen.append(batch.clone())

    def overwritten(self, j, i):
        """Return how the copy of batch i may write to the memory of batch j, None if it can't."""
        if self.freed.get(j, i + 1) <= i:  # given up before that copy was asked for
            return None if self.stream in self.memory[j].recorded else "whose memory the allocator may have given to it"
        a, b = self.places[j], self.places[i]
        return "and goes to the same buffer" if a.start < b.stop and b.start < a.stop else None

    def _copies(self):
        return sum(span.kind == "copy" for span in self.trace.spans)


def _owner(batch):
    return batch if batch._base is None else batch._base
