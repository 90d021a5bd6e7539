"""What a schedule is: messages between ranks, in steps, over a buffer cut into chunks."""

import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple


class Send(NamedTuple):
    """One message: chunks `start` to `stop` − 1 of rank `src`'s buffer go to the same place in rank `dst`'s.

    Attributes:
        op: "reduce" adds them to what `dst` holds, "copy" overwrites it.
    """

    src: int
    dst: int
    start: int
    stop: int
    op: str


@dataclass(frozen=True)
class Schedule:
    """The steps of a collective between `world_size` ranks whose buffers are cut into `chunks` chunks.

    Raises:
        ValueError: Unless there is at least one rank.
    """

    name: str
    world_size: int
    chunks: int
    steps: tuple[tuple[Send, ...], ...]

    def __post_init__(self):
        need(self.world_size)

    @cached_property
    def mark(self) -> int:
        """A checksum of all messages: it tells schedules of one name apart, and is the same in every process."""
        return zlib.crc32(repr((self.world_size, self.chunks, self.steps)).encode())

    def __hash__(self):
        """Hash the mark: it is known after the first time, where a dataclass would go through all messages again."""
        return self.mark


def offsets(n: int, chunks: int) -> list[int]:
    """Return where n elements are cut: chunk i is [offsets[i], offsets[i+1]).

    The first n % chunks chunks have one element more, as in tensor_split.
    """
    small, larger = divmod(n, chunks)
    return [i * small + min(i, larger) for i in range(chunks + 1)]


def messages(schedule: Schedule, n: int) -> Iterator[tuple[int, Send, int, int]]:
    """Yield (step, send, first, last) for every message that a buffer of n elements needs, in order.

    first, last: the elements [first, last) that the message carries; messages without an element are left out.
    """
    cuts = offsets(n, schedule.chunks)
    for step, sends in enumerate(schedule.steps):
        for send in sends:
            if cuts[send.start] < cuts[send.stop]:
                yield step, send, cuts[send.start], cuts[send.stop]


def need(world_size: int, root: int = 0) -> None:
    """Raise ValueError unless there is a rank, and `root` is one of the ranks."""
    if world_size < 1:
        raise ValueError(f"a collective needs at least 1 rank, got {world_size}")
    if not 0 <= root < world_size:
        raise ValueError(f"the root must be one of the ranks 0 to {world_size - 1}, got {root}")
