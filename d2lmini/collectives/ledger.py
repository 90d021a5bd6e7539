"""The ledger of a collective: every message that was sent, with its bytes, its link and its time."""

from collections import Counter
from dataclasses import dataclass
from typing import NamedTuple


class Message(NamedTuple):
    """One message of a collective.

    Attributes:
        step: The schedule's step, from 0.
        src, dst: The ranks that send and receive it.
        nbytes: Its size.
        link: The wires that it went over, by name.
        start, end: Seconds since the collective began, on the simulated clock; None where there is none.
    """

    step: int
    src: int
    dst: int
    nbytes: int
    link: str
    start: float | None
    end: float | None


@dataclass(frozen=True)
class Ledger:
    """What a collective over buffers of `nbytes` bytes sent.

    Attributes:
        messages: In order of the schedule.
        seconds: From its beginning to the end of the last addition or message, simulated on the machine that `clock`
            names; both are None without a simulated clock.
        steps: Those of the schedule, also when some had nothing to send.
    """

    name: str
    world_size: int
    steps: int
    nbytes: int
    messages: tuple
    seconds: float | None = None
    clock: str | None = None

    def sent(self) -> list[int]:
        """Return the bytes that each rank sent, as a list."""
        return self._bytes("src")

    def received(self) -> list[int]:
        """Return the bytes that each rank received, as a list."""
        return self._bytes("dst")

    def link_bytes(self) -> dict[str, int]:
        """Return the bytes that went over each link, by its name."""
        total: Counter[str] = Counter()
        for message in self.messages:
            total[message.link] += message.nbytes
        return dict(sorted(total.items()))

    def _bytes(self, end):
        total: Counter[int] = Counter()
        for message in self.messages:
            total[getattr(message, end)] += message.nbytes
        return [total[rank] for rank in range(self.world_size)]
