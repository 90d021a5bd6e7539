"""Copies between memories: how long they take, by size, by route and by kind of host memory.

`routes` lists those between the given devices: real GPUs, simulated ones or, on a machine with neither, from one place
in the host's memory to another. On simulated GPUs the times are simulated, else measured.

Caches would flatter a measurement that copies the same bytes again and again. So each copy on the wall clock takes the
next bytes of a pool that is larger than caches are, and comes back to the first when all others were used since. Copies
within the host run on one thread: PyTorch shares large ones out among all, which bends the line where it begins to,
and on a busy machine waits for the last of them.
"""

import contextlib
import itertools
from dataclasses import dataclass

import torch

from d2lmini import host
from d2lmini.devices import cpu, threads, try_all_gpus
from d2lmini.measuring import line_fit
from d2lmini.timing import Measurement, measure, provenance, simulated

SIZES = tuple(2**k for k in range(10, 29))  # bytes: 1 KiB to 256 MiB
POOL = 2**28  # bytes: at each end of a route; the largest caches of common processors have some 100 MiB
LARGE = 2**24  # bytes: from here on a copy is repeated only as often as an interval needs
REPEAT, FEWEST = 11, 6
BATCH = 64  # copies within the host are too short to be timed one at a time
ITEM = 4  # bytes of a float32


@dataclass(frozen=True)
class Route:
    """From one memory to another.

    Attributes:
        src, dst: The torch.device at each end.
        pinned: Whether the host's end is page-locked.
        staged: Whether a copy between two GPUs goes through pinned memory of the host.

    Raises:
        ValueError: Pinned memory without a host's end, or a stage that is not between two GPUs.
    """

    src: torch.device
    dst: torch.device
    pinned: bool = False
    staged: bool = False

    def __post_init__(self):
        if self.pinned and self.host_ends != 1:
            raise ValueError(f"pinned memory serves copies between the host and a GPU, not {self.src} → {self.dst}")
        if self.staged and (self.host_ends or self.src == self.dst):
            raise ValueError(f"only a copy between two GPUs can be staged, not {self.src} → {self.dst}")

    @property
    def host_ends(self):
        """How many of the two ends are in the host's memory."""
        return (self.src.type == "cpu") + (self.dst.type == "cpu")

    def __str__(self):
        """Name both ends, and the kind of the host's memory where that matters."""
        kind = "staged" if self.staged else "pinned" if self.pinned else "pageable"
        return f"{self.src} → {self.dst}{f', {kind}' if self.staged or self.host_ends == 1 else ''}"


@dataclass(frozen=True)
class Copies(line_fit.Sweep):
    """Measured copies along one route. origin: what `timing.provenance` says, a simulated machine or this one."""

    route: Route
    origin: str


def routes(*devices):
    """Return every `Route` between the host and each of the devices, inside each, and between every two of them.

    With no argument, for all accelerators; with none there, or only the CPU given, the one route within the host.
    """
    gpus = [d for d in map(torch.device, devices or try_all_gpus()) if d.type != "cpu"]
    found = []
    for gpu in gpus:
        found += [Route(*ends, pinned) for ends in ((cpu(), gpu), (gpu, cpu())) for pinned in (False, True)]
        found.append(Route(gpu, gpu))
    for pair in itertools.combinations(gpus, 2):
        found += [Route(*pair), Route(*pair, staged=True)]
    return found or [Route(cpu(), cpu())]


def measure_route(route, *, most=SIZES[-1], sizes=SIZES, pool=POOL):
    """Measure copies of float32 numbers along one `Route`.

    Args:
        route: Between which memories.
        most: The largest size, in bytes.
        sizes: Bytes of the copies; those up to `most` are measured.
        pool: Bytes at each end that the copies on the wall clock take turns with; 0 copies the same bytes again and
            again, from the caches.

    Returns:
        The `Copies`.

    Raises:
        ValueError: A size that is not a positive number of whole float32.
        MemoryError: The host's memory is too small; nothing has been allocated then.
    """
    ends, chosen = [route.src, route.dst], _check_sizes(sizes, most)
    pool = max(chosen[-1], 0 if simulated(ends) else pool)
    _check_memory(route, pool, chosen[-1])
    dst, src = (_Pool(pool // ITEM, end, route.pinned) for end in (route.dst, route.src))
    stage = _ones(chosen[-1] // ITEM, cpu(), pinned=True) if route.staged else None
    with threads(1) if route.host_ends == 2 else contextlib.nullcontext():
        done = [_time(nbytes, dst, src, stage, ends) for nbytes in chosen]
        return Copies(chosen, tuple(done), route, provenance(ends))


class _Pool:
    """Memory of `numbers` numbers that is handed out piece by piece, from the beginning again when it is used up."""

    def __init__(self, numbers, device, pinned):
        self.numbers, self.at = _ones(numbers, device, pinned), 0

    def take(self, count):
        """Return the next `count` numbers."""
        if self.at + count > len(self.numbers):
            self.at = 0
        self.at += count
        return self.numbers[self.at - count : self.at]


def _ones(numbers, device, pinned):
    """Return a tensor whose memory was touched: the host's system hands out a page when it is first written."""
    ones = torch.ones(numbers, device=device)
    return ones.pin_memory() if pinned and device.type == "cpu" else ones


def _time(nbytes, dst, src, stage, ends):
    """Return the `Measurement` of copying so many bytes; each copy takes its own piece of both pools."""
    count = nbytes // ITEM
    batch = max(1, min(BATCH, LARGE // nbytes)) if {end.type for end in ends} == {"cpu"} else 1
    repeat = FEWEST if simulated(ends) or nbytes >= LARGE else REPEAT
    warmup = 0 if simulated(ends) else 2
    pieces = iter([(dst.take(count), src.take(count)) for _ in range(batch * (repeat + warmup))])
    middle = None if stage is None else stage[:count]

    def copy():
        for to, of in itertools.islice(pieces, batch):
            if middle is not None:
                of = middle.copy_(of)
            to.copy_(of)

    laps = measure(copy, repeat, warmup, ends)
    return Measurement(tuple(seconds / batch for seconds in laps.seconds))


def _check_sizes(sizes, most):
    """Return the sizes up to `most`, smallest first."""
    for nbytes in sizes:
        if not isinstance(nbytes, int) or nbytes < 1 or nbytes % ITEM:
            raise ValueError(f"expected a positive multiple of {ITEM} bytes as a copy's size, got {nbytes!r}")
    chosen = tuple(sorted(nbytes for nbytes in sizes if nbytes <= most))
    if not chosen:
        raise ValueError(f"expected a size of at most {most} bytes, got {list(sizes)}")
    return chosen


def _check_memory(route, pool, largest):
    """Raise MemoryError unless the host has room for its ends, and for the stage between two GPUs."""
    copies = 2 if route.pinned else route.host_ends  # pinning makes a copy, and then frees the original
    host.require_memory(2 * largest if route.staged else copies * pool, f"copying {route}")
