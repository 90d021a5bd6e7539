"""Which rank the others wait for in vain, judged from what the ranks tell of themselves about once a second.

    beat of rank r      number 1, 2, 3, …   marks it has passed   seconds busy        slow?   where   its process
    no new beat         killed, stopped, or cut off from the network
    fewest marks        the others wait for it: asleep if it uses no processor, else it computes, which may take long
"""

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import psutil

ASLEEP = 0.1  # of the time: who is busy for less only waits
LONGER = 30  # how many times as long a rank may take that computes, or reads and writes files
TO_BEGIN = 3  # and one whose process has just been started


@dataclass(frozen=True)
class Beat:
    """What a rank tells: see the module. `done`: it has nothing left to do with the others.

    `host`: the name to show; `machine`: what processes have in common that see each other's numbers, `pid`.
    """

    number: int
    marks: int
    busy_s: float
    slow: bool
    place: str
    host: str
    machine: str
    pid: int
    done: bool = False


@dataclass(frozen=True)
class Seen:
    """What is known of a rank: its last `beat`, and the seconds for which there was no other, and no new mark.

    `rested_at`: the seconds for which it had been busy when it passed its last mark. `beat` is None before the first.
    """

    beat: Beat | None = None
    silent_s: float = 0.0
    still_s: float = 0.0
    rested_at: float = 0.0

    def next(self, beat, seconds):
        """Return what is known `seconds` later, when `beat` is its last."""
        old = self.beat
        if beat is None or (old and beat.number == old.number):
            return replace(self, silent_s=self.silent_s + seconds, still_s=self.still_s + seconds)
        if old is None or beat.marks != old.marks:
            return Seen(beat, 0.0, 0.0, beat.busy_s)
        return Seen(beat, 0.0, self.still_s + seconds, self.rested_at)


def verdict(seen, patience):
    """Return which ranks are the cause and why, as one sentence, or None while there is nothing to say.

    seen: by rank. patience: seconds that a rank may be silent, or asleep while others wait for it; `LONGER` times as
    many for one that computes, reads or writes, `TO_BEGIN` times for one that has not begun.
    """
    going = {rank: s for rank, s in seen.items() if not (s.beat and s.beat.done)}
    ended = {rank: f"{_who(s.beat)} was killed or has ended" for rank, s in going.items() if s.beat and _gone(s.beat)}
    silent = {rank: _silent(s) for rank, s in going.items() if s.silent_s >= patience * (1 if s.beat else TO_BEGIN)}
    return _sentence(ended) or _sentence(silent) or _sentence(_behind(going, patience)) or None


def _silent(seen):
    who = _who(seen.beat) if seen.beat else ""
    return f"{who} has given no sign of life for {seen.silent_s:.0f} s: it is stopped, frozen or cut off".strip()


def _behind(going, patience):
    """Return those that have passed the fewest marks and stay there; nobody is behind where all have passed as many.

    Those ahead must stay where they are for as long: who has waited for another is itself behind for a moment when that
    one goes on. Of one that falls silent nobody knows what it does: it is judged by its silence.
    """
    marks = {rank: s.beat.marks for rank, s in going.items() if s.beat}
    if not marks or len(marks) < len(going):
        return {}
    fewest, found = min(marks.values()), {}
    waited = max((s.still_s for rank, s in going.items() if marks[rank] > fewest), default=0.0)
    for rank, s in going.items():
        asleep = not s.beat.slow and s.beat.busy_s - s.rested_at < ASLEEP * s.still_s
        still, limit = min(s.still_s, waited), patience * (1 if asleep else LONGER)
        if marks[rank] == fewest and s.silent_s < patience / 2 and still >= limit:
            does = "has done nothing" if asleep else "has come no further"
            found[rank] = f"{_who(s.beat)} {does} for {still:.0f} s while others waited: it is in {s.beat.place}"
    return found


def _who(beat):
    return f"(process {beat.pid} on {beat.host})"


def _gone(beat):
    """Return whether a process of this machine has ended; of another machine's nobody here knows."""
    if beat.machine != machine():
        return False
    try:
        return psutil.Process(beat.pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True


@cache
def machine():
    """Return what tells this machine, and on Linux this container, from others; a host's name need not."""
    with suppress(OSError):
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {os.readlink('/proc/self/ns/pid')}"
    return f"{socket.gethostname()} {uuid.getnode()}"


def _sentence(found):
    return "; ".join(f"rank {rank} {why}" for rank, why in found.items())
