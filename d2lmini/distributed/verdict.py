"""Which rank the others wait for in vain, judged from what the ranks tell of themselves about once a second.

    beat of rank r      number 1, 2, 3, …   marks it has passed   seconds busy        slow?   where   its process
    no new beat         killed, stopped, or cut off from the network
    fewest marks        the others wait for it: it is asleep if it uses no processor; else it computes, which may take
                        long, but not very many times as long as ever before in a work that is familiar
"""

import os
import socket
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import psutil

from d2lmini.timing import human

ASLEEP = 0.1  # of the time: who is busy for less only waits
AWAKE = 0.25  # of patience a rank must have had the processor: where others want it too, it gets a part of the time
LONGER = 30  # how many times as long a rank may take that computes, or reads and writes files
TO_BEGIN_S = 20.0  # that a rank may begin after another, even where patience is short: it has to load torch


@dataclass(frozen=True)
class Beat:
    """What a rank tells: see the module. `done`: it has nothing left to do with the others.

    `host`: the name to show; `machine`: what processes have in common that see each other's numbers, `pid`.
    `spent_s`: on the work that it is in, if it is a familiar one, whose `longest_s` before is then known.
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
    spent_s: float = 0.0
    longest_s: float | None = None


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


def look(seen, beats, seconds):
    """Return what is known of all ranks `seconds` later; beats: the last one of each rank that has begun.

    Only while a rank is behind is it counted how long it stands still: one that others have made wait is not asleep.
    """
    seen = {rank: s.next(beats.get(rank), seconds) for rank, s in seen.items()}
    most = max((beat.marks for beat in beats.values()), default=0)
    return {rank: replace(s, still_s=0.0, rested_at=s.beat.busy_s) if s.beat and s.beat.marks == most else s
            for rank, s in seen.items()}  # fmt: skip


def verdict(seen, patience):
    """Return which ranks are the cause and why, as one sentence, or None while there is nothing to say.

    seen: by rank. patience: seconds that a rank may be silent, or asleep while others wait for it; at least
    `TO_BEGIN_S` for one that has not begun, and `LONGER` times as many for one that computes, reads or writes. A
    familiar work, however, is endless once it has had the processor for `AWAKE` of patience and for `LONGER` times as
    long as ever before.
    """
    going = {rank: s for rank, s in seen.items() if not (s.beat and s.beat.done)}
    ended = {rank: f"{_who(s.beat)} was killed or has ended" for rank, s in going.items() if s.beat and _gone(s.beat)}
    to_begin = max(patience, TO_BEGIN_S)
    silent = {rank: _silent(s) for rank, s in going.items() if s.silent_s >= (patience if s.beat else to_begin)}
    return _sentence(ended) or _sentence(silent) or _sentence(_behind(going, patience)) or None


def missing(seen, seconds):
    """Return who may be the cause when torchrun ends all: who has not begun, or has been silent for so long."""
    found = {rank: f"{_who(s.beat)} has given no sign of life for {s.silent_s:.0f} s" if s.beat else "had not begun"
             for rank, s in seen.items() if not s.beat or (s.silent_s >= seconds and not s.beat.done)}  # fmt: skip
    return _sentence(found)


def _silent(seen):
    said = f"has given no sign of life for {seen.silent_s:.0f} s"
    if not seen.beat:
        return f"{said}, and had not begun: it failed before, or raise --patience if it only starts late"
    killed = "was killed, or " if seen.beat.machine != machine() else ""  # of this machine's that would be known
    return f"{_who(seen.beat)} {said}: it {killed}is stopped, frozen, cut off, or in code that lets no other thread run"


def _behind(going, patience):
    """Return those that have passed the fewest marks and stay there; nobody is behind where all have passed as many.

    Of one that falls silent nobody knows what it does: it is judged by its silence.
    """
    marks = {rank: s.beat.marks for rank, s in going.items() if s.beat}
    found = {}
    for rank in marks if marks and len(marks) == len(going) else ():
        s = going[rank]
        behind = marks[rank] == min(marks.values()) < max(marks.values())
        if behind and s.silent_s < patience / 2 and s.still_s >= patience:
            does = _does(s, patience)
            found |= {rank: f"{_who(s.beat)} {does}"} if does else {}
    return found


def _does(s, patience):
    """Return what a rank did for `patience` seconds while others waited, or None where it may take longer."""
    beat, waited = s.beat, f"for {s.still_s:.0f} s while others waited"
    where, spent = f"it is in {beat.place}", beat.busy_s - s.rested_at
    if not beat.slow and spent < ASLEEP * s.still_s:
        return f"has done nothing {waited}: {where}"
    if not beat.slow and beat.longest_s is not None and beat.spent_s >= max(AWAKE * patience, LONGER * beat.longest_s):
        longest = f"the longest before took {human(beat.longest_s)}"
        return f"has computed on one batch {waited}, {longest}: {where}; raise --patience if that is honest"
    return f"has come no further {waited}: {where}" if s.still_s >= LONGER * patience else None


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
