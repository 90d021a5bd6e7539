"""What errors between ranks say: who waits for what, and in which line of the program."""

import sys
import threading
from collections import defaultdict
from pathlib import Path

import torch

from simgpu.ranks.call import Call
from simgpu.ranks.errors import in_words

_OURS = tuple(str(Path(file).parent) for file in (torch.__file__, threading.__file__, Path(__file__).parent))
_LIBRARIES = (*_OURS, str(Path(torch.__file__).parents[1]))  # whatever is installed beside torch


def deadlock(world, works):
    """Return why no rank of `world` can go on, given the works that are waited for."""
    ended = [rank.number for rank in world.ranks if rank.ended]
    returned = f"; {in_words(ended)} returned" if ended else ""
    return f"no rank can go on: {waits(world, works)}{returned}"


def asleep(world, rank):
    """Return why `rank`, which does nothing but sleep while all others wait or have returned, will never go on."""
    line = place(sys._current_frames().get(rank.thread))
    told = [f"rank {rank.number} has slept for {rank.slept:.0f} simulated seconds{line}", *_others(world)]
    return f"no rank can go on: {'; '.join(told)}"


def blocked(world):
    """Return why the ranks of `world`, some of which wait for what is no collective, will never go on."""
    return f"no rank can go on: {'; '.join(_others(world))}"


def _others(world):
    frames = sys._current_frames()
    told = [
        f"rank {rank.number} waits for {rank.blocked}{place(frames.get(rank.thread))}, which never comes"
        for rank in world.ranks
        if rank.blocked
    ]
    waiting = world.scheduler.waiting()
    return [*told, waits(world, waiting)] if waiting else told


def waits(world, works):
    """Return what ranks wait for; those that wait for the same share a clause."""
    clauses, frames = defaultdict(list), sys._current_frames()
    for work in sorted(works, key=lambda work: work.rank):
        frame = frames.get(work.owner.thread)
        line = place(frame) if frame else work.call.line  # the rank has returned
        where = work.call.details() + work.call.rendezvous.made if isinstance(work.call, Call) else ""
        clauses[f"{work.call}{where}{line}, {work.lacks()}"].append(work.rank)
    told = "; ".join(f"{in_words(ranks)} in {clause}" for clause, ranks in clauses.items())
    return f"{told}; {left_out(world)}" if world.new_groups.lacking() else told


def left_out(world):
    """Return which call of ``dist.new_group`` ranks left out."""
    number, ranks, missing = world.new_groups.lacking()
    return (
        f"new_group #{number}, for ranks {ranks}, was not called by {in_words(missing)}: all ranks must call "
        "it, also for groups that they are not in"
    )


def program_frame(frame):
    """Return the innermost frame of the program's own code, or of a library that it uses; None where there is none."""
    return _outside(_LIBRARIES, frame) or _outside(_OURS, frame)


def _outside(folders, frame):
    while frame is not None and frame.f_code.co_filename.startswith(folders):
        frame = frame.f_back
    return frame


def place(frame=None):
    """Return in words where the program is: `` (in step, train.py:12)``, for a notebook's cell `` (in step, line 12)``.

    Args:
        frame: A thread's; by default the calling one's.
    """
    frame = program_frame(frame or sys._getframe(1))
    if frame is None:
        return ""
    code = frame.f_code
    cell = code.co_filename.startswith("<") or "ipykernel" in code.co_filename
    line = f"line {frame.f_lineno}" if cell else f"{Path(code.co_filename).name}:{frame.f_lineno}"
    return f" (in {code.co_name}, {line})"
