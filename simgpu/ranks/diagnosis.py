"""What a deadlock's message says: who waits for what, and in which line of the program."""

import sys
import threading
from collections import defaultdict
from pathlib import Path

import torch

from simgpu.ranks.errors import in_words

_LIBRARIES = (*(str(Path(module.__file__).parent) for module in (torch, threading)), str(Path(__file__).parents[1]))


def stuck(world, works):
    """Return why no rank of `world` can go on, given the works that are waited for."""
    ended = [rank.number for rank in world.ranks if rank.ended]
    returned = f"; {in_words(ended)} returned" if ended else ""
    return f"no rank can go on: {waits(world, works)}{returned}"


def asleep(world, rank):
    """Return why `rank`, which does nothing but sleep while all others wait or have returned, will never go on."""
    frame = program_frame(sys._current_frames().get(rank.thread))
    line = f" (in {frame.f_code.co_name}, line {frame.f_lineno})" if frame else ""
    return (
        f"no rank can go on: rank {rank.number} has slept for {rank.slept:.0f} simulated seconds{line}; "
        f"{waits(world, world.scheduler.waiting())}"
    )


def waits(world, works):
    """Return what ranks wait for; those that wait for the same share a clause."""
    clauses, frames = defaultdict(list), sys._current_frames()
    for work in sorted(works, key=lambda work: work.rank):
        frame = program_frame(frames.get(work.owner.thread))
        line = f" (in {frame.f_code.co_name}, line {frame.f_lineno})" if frame else ""
        clauses[f"{work.call}{line}, {work.lacks()}"].append(work.rank)
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
    """Return the innermost frame of the program's own code."""
    while frame is not None and frame.f_code.co_filename.startswith(_LIBRARIES):
        frame = frame.f_back
    return frame
