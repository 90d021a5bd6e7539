"""What simulated GPUs did inside a ``with``: bytes, collectives, waits, memory, time, and a check of them."""

import re
from collections import Counter

import torch

import simgpu
from simgpu.torch_glue.here import here

_STEP = re.compile(r", step (\d+) of \d+$")
_BETWEEN = re.compile(r"copy gpu(\d+)→gpu\d+$")


class Costs:
    """Counts while used as a context manager; read it afterwards.

    bytes_sent: what GPUs sent one another by collectives, messages and copies, summed over GPUs. collectives: the calls
    of collectives, one for all ranks together. host_waits: how often a host stood still until a GPU was done, summed
    over ranks. peak_bytes: the most memory in use at one time on any GPU; on a cluster, on any GPU of the first node.
    seconds: simulated, from the beginning to the end of all that was queued inside.

    A group of one rank sends nothing, and its collectives are not counted. Raises RuntimeError where no simulated GPUs
    with a clock are enabled, and on a rank: it stands around `simgpu.spawn`.
    """

    bytes_sent = collectives = host_waits = peak_bytes = seconds = None

    def __enter__(self):
        if here() is not None:
            raise RuntimeError(
                f"expected costs() around simgpu.spawn, where it counts all ranks once, got it on rank {here().number}"
            )
        self._trace = simgpu.trace()
        self._gpus = range(torch.sim.device_count())
        for gpu in self._gpus:
            torch.sim.reset_peak_memory_stats(gpu)
        self._trace.__enter__()
        return self

    def __exit__(self, *error):
        self._trace.__exit__(*error)
        spans, self.seconds = self._trace.spans, self._trace.seconds
        self.peak_bytes = max(torch.sim.max_memory_allocated(gpu) for gpu in self._gpus)
        self.bytes_sent = sum(span.nbytes for span in spans if span.kind == "communication" or _leaves(span))
        self._calls = Counter(name for name, _ in {(span.name, span.start) for span in spans if _begins(span)})
        self._waits = Counter(span.name for span in spans if span.kind == "wait")
        self.collectives, self.host_waits = self._calls.total(), self._waits.total()

    def check(self, *, bytes_sent=None, collectives=None, host_waits=None, peak_bytes=None, seconds=None):
        """Raise AssertionError, in one line that says what came, unless the counts are as given.

        bytes_sent, collectives and host_waits must be equal to what is given, peak_bytes and seconds at most that.
        What is not given is not looked at. Raises RuntimeError before the ``with`` has ended.
        """
        if self.seconds is None:
            raise RuntimeError("expected the check after the with of costs(), where the counts are complete")
        faults = [
            _differs("bytes sent between GPUs", bytes_sent, self.bytes_sent),
            _differs("collectives", collectives, self.collectives, self._calls),
            _differs("waits of the host", host_waits, self.host_waits, self._waits),
            _exceeds("bytes in use on a GPU", peak_bytes, self.peak_bytes),
            _exceeds("simulated seconds", seconds, self.seconds),
        ]
        if any(faults):
            raise AssertionError("; ".join(filter(None, faults)))

    def __repr__(self):
        return (
            f"Costs(bytes_sent={self.bytes_sent}, collectives={self.collectives}, host_waits={self.host_waits}, "
            f"peak_bytes={self.peak_bytes}, seconds={self.seconds})"
        )


def _differs(what, want, found, names=()):
    if want is None or want == found:
        return None
    which = ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) if names else ""
    return f"{what}: expected {want:,}, found {found:,}" + (f" ({which})" if which else "")


def _exceeds(what, limit, found):
    return None if limit is None or found <= limit else f"{what}: expected at most {limit:,}, found {found:,}"


def _begins(span):
    """Return whether a span is a collective's on a GPU: the first step's, if each of its steps has one."""
    step = _STEP.search(span.name)
    return span.kind == "communication" and not span.name.startswith("send ") and (not step or step[1] == "1")


def _leaves(span):
    """Return whether a span is a copy between two GPUs on the wire by which it leaves the first."""
    copied = _BETWEEN.match(span.name) if span.kind == "copy" else None
    return bool(copied) and (span.place.endswith(f"gpu{copied[1]} out") or f" gpu{copied[1]}→" in span.place)
