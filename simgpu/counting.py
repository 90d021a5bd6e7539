"""What simulated GPUs did inside a ``with``: bytes, collectives, waits, memory, time, and a check of them."""

import re
from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

import simgpu
from simgpu.accounting.trace import Span
from simgpu.device import api
from simgpu.torch_glue.here import here

_STEP = re.compile(r", step (\d+) of \d+$")
_BETWEEN = re.compile(r"copy gpu(\d+)→gpu\d+$")


class Costs:
    """Counts while used as a context manager; read it afterwards.

    A group of one rank sends nothing, and its collectives are not counted. Entering it raises RuntimeError where no
    simulated GPUs with a clock are enabled, and on a rank: it stands around `simgpu.spawn`.

    Attributes:
        bytes_sent: Bytes that GPUs sent one another by collectives, messages and copies, summed over GPUs.
        collectives: Calls of collectives, one for all ranks together.
        host_waits: How often a host stood still until a GPU was done, summed over ranks.
        peak_bytes: The most memory in use at one time on any GPU; on a cluster, on any GPU of the first node.
        seconds: Simulated seconds from the beginning to the end of all that was queued inside; None before the end.
    """

    bytes_sent: int = 0
    collectives: int = 0
    host_waits: int = 0
    peak_bytes: int = 0
    seconds: float | None = None

    def __enter__(self) -> "Costs":
        rank = here()
        if rank is not None:
            raise RuntimeError(
                f"expected costs() around simgpu.spawn, where it counts all ranks once, got it on rank {rank.number}"
            )
        self._trace = simgpu.trace()
        self._gpus = range(api.device_count())
        for gpu in self._gpus:
            api.reset_peak_memory_stats(gpu)
        self._trace.__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        self._trace.__exit__(*error)
        spans, self.seconds = self._trace.spans, self._trace.seconds
        self.peak_bytes = max(api.max_memory_allocated(gpu) for gpu in self._gpus)
        self.bytes_sent = sum(span.nbytes for span in spans if span.kind == "communication" or _leaves(span))
        self._calls = Counter(name for name, _ in {(span.name, span.start) for span in spans if _begins(span)})
        self._waits = Counter(span.name for span in spans if span.kind == "wait")
        self.collectives, self.host_waits = self._calls.total(), self._waits.total()

    def check(
        self,
        *,
        bytes_sent: int | None = None,
        collectives: int | None = None,
        host_waits: int | None = None,
        peak_bytes: int | None = None,
        seconds: float | None = None,
    ) -> None:
        """Compare the counts with what is expected; what is not given is not looked at.

        Args:
            bytes_sent: What it must be.
            collectives: What it must be.
            host_waits: What it must be.
            peak_bytes: What it must be at most.
            seconds: What it must be at most.

        Raises:
            AssertionError: A count is another; one line says which came.
            RuntimeError: The ``with`` has not ended.
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

    def __repr__(self) -> str:
        return (
            f"Costs(bytes_sent={self.bytes_sent}, collectives={self.collectives}, host_waits={self.host_waits}, "
            f"peak_bytes={self.peak_bytes}, seconds={self.seconds})"
        )


def _differs(what: str, want: int | None, found: int, names: Mapping[str, int] = MappingProxyType({})) -> str | None:
    if want is None or want == found:
        return None
    which = ", ".join(f"{count} × {name}" for name, count in sorted(names.items())) if names else ""
    return f"{what}: expected {want:,}, found {found:,}" + (f" ({which})" if which else "")


def _exceeds(what: str, limit: float | None, found: float) -> str | None:
    return None if limit is None or found <= limit else f"{what}: expected at most {limit:,}, found {found:,}"


def _begins(span: Span) -> bool:
    """Return whether a span is a collective's on a GPU: the first step's, if each of its steps has one."""
    step = _STEP.search(span.name)
    return span.kind == "communication" and not span.name.startswith("send ") and (not step or step[1] == "1")


def _leaves(span: Span) -> bool:
    """Return whether a span is a copy between two GPUs on the wire by which it leaves the first."""
    copied = _BETWEEN.match(span.name) if span.kind == "copy" else None
    return copied is not None and (span.place.endswith(f"gpu{copied[1]} out") or f" gpu{copied[1]}→" in span.place)
