"""What a reader's function does on simulated GPUs: its copies and the host's waits, and who uses a batch's memory."""

import contextlib
import weakref
from unittest import mock

import torch

import simgpu
from d2lmini.checks.mechanism import attempt, called


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
    """What happens to each batch on the device, of work in `stream`: yielded, marked for a stream, given up."""

    def __init__(self, trace, stream):
        self.trace, self.stream = trace, stream
        self.seen, self.places, self.asked, self.marks, self.kept, self.freed = [], [], [], [], [], {}
        self.homes = []

    def yielded(self, batch):
        """Note where a batch lies, how many copies were asked for by now, and when its memory is given up."""
        i = len(self.seen)
        self.places.append(range(batch.data_ptr(), batch.data_ptr() + batch.nbytes))
        self.asked.append(self._copies())
        self.marks.append(self._marks(batch))
        self.homes.append(getattr(batch.untyped_storage(), "home", None))
        weakref.finalize(_owner(batch), lambda: self.freed.setdefault(i, self._copies()))
        self.kept.append(len({place.start for j, place in enumerate(self.places) if j not in self.freed}))
        self.seen.append(batch.clone())

    @contextlib.contextmanager
    def told(self, tensor_type):
        """Note what the allocator knows: the stream that asked for each storage, its `home`, and those it is told of.

        Memory goes back to its home alone, and without a wait for any other stream that it was not told of.
        """
        add = simgpu.Allocator.add

        def noted(memory, storage):
            add(memory, storage)
            if not hasattr(storage, "home"):
                storage.home = torch.sim.current_stream(memory.index)

        def marked(batch, stream):
            self._marks(batch).append(stream)

        with mock.patch.object(simgpu.Allocator, "add", noted), mock.patch.object(tensor_type, "record_stream", marked):
            yield

    def overwritten(self, j, i):
        """Return how the copy of batch i may write to the memory of batch j, None if it can't."""
        if self.freed.get(j, i + 1) <= i:  # given up before that copy was asked for
            told = self.stream in self.marks[j] and self.stream != self.homes[j]  # a memory's own stream tells nothing
            return None if told else "whose memory the allocator may have given to it"
        a, b = self.places[j], self.places[i]
        return "and goes to the same buffer" if a.start < b.stop and b.start < a.stop else None

    def _copies(self):
        return sum(span.kind == "copy" for span in self.trace.spans)

    @staticmethod
    def _marks(batch):
        return vars(_owner(batch)).setdefault("marks", [])


def _owner(batch):
    return batch if batch._base is None else batch._base
