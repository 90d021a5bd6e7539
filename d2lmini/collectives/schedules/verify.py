"""Schedules run on sets in place of numbers: each chunk holds the set of ranks whose contribution is in it.

A sum cannot tell 2 + 0 from 1 + 1; a set can. What is added twice, never arrives or goes to the wrong place shows at
the step that does it. The same states, step by step, are what the chapter's stepper draws.
"""

from collections.abc import Callable, Iterator

from d2lmini.collectives.schedules.schedule import Schedule

State = list[list[frozenset[int]]]  # [rank][chunk]: the ranks whose contributions are in it


def states(schedule: Schedule) -> Iterator[State]:
    """Yield the state before the first step and after each step: state[rank][chunk] is a frozenset of ranks.

    Before the first step, each chunk of rank r holds {r}.

    Raises:
        ValueError: A message that no executor should run: an unknown rank, chunk or op, a message to itself, two
            messages for one chunk in one step, a contribution counted twice, or a message that brings nothing new.
    """
    state = [[frozenset([rank])] * schedule.chunks for rank in range(schedule.world_size)]
    yield state
    for step, sends in enumerate(schedule.steps):
        before, state, written = state, [list(row) for row in state], set()
        for send in sends:
            where = f"{schedule.name}, step {step}, {send}"
            _must_be_possible(schedule, send, where)
            for chunk in range(send.start, send.stop):
                if (send.dst, chunk) in written:
                    raise ValueError(f"{where}: rank {send.dst}'s chunk {chunk} is written twice in one step")
                written.add((send.dst, chunk))
                there, comes = before[send.dst][chunk], before[send.src][chunk]
                state[send.dst][chunk] = _combine(there, comes, send.op, f"{where}: rank {send.dst}'s chunk {chunk}")
        yield state


def check(schedule: Schedule, collective: str, root: int = 0) -> None:
    """Raise ValueError unless a schedule carries out a collective, saying which rank's chunk is wrong and how.

    Args:
        schedule: The schedule.
        collective: "broadcast", "reduce", "scatter", "gather", "all-gather", "reduce-scatter" or "all-reduce". Chunks
            that it says nothing about may hold anything.
        root: For those that have one.

    >>> from d2lmini.collectives import schedules
    >>> schedules.check(schedules.named("ring", 5), "all-reduce")
    >>> schedules.check(schedules.reduce(5), "all-reduce")
    Traceback (most recent call last):
    ValueError: ...
    """
    wanted, (*_, final) = promised(collective, schedule.world_size, schedule.chunks, root), states(schedule)
    for rank in range(schedule.world_size):
        for chunk in range(schedule.chunks):
            want, got = wanted[rank][chunk], final[rank][chunk]
            if want is not None and got != want:
                raise ValueError(
                    f"{schedule.name}: after the last step, rank {rank}'s chunk {chunk} must hold "
                    f"{_ranks(want)}, it holds {_ranks(got)}"
                )


def promised(collective: str, world_size: int, chunks: int, root: int = 0) -> list[list[frozenset[int] | None]]:
    """Return what a collective leaves: a state as `states` yields it, with None where it promises nothing.

    Raises:
        ValueError: For an unknown collective.
    """
    if collective not in _WANTED:
        raise ValueError(f"unknown collective {collective!r}: choose one of {', '.join(_WANTED)}")
    everyone = frozenset(range(world_size))
    return [[_WANTED[collective](rank, c, root, everyone) for c in range(chunks)] for rank in range(world_size)]


# What rank's chunk must hold in the end; None where the collective says nothing.
_WANTED: dict[str, Callable] = {
    "broadcast": lambda rank, chunk, root, everyone: frozenset([root]),
    "reduce": lambda rank, chunk, root, everyone: everyone if rank == root else None,
    "scatter": lambda rank, chunk, root, everyone: frozenset([root]) if rank == chunk else None,
    "gather": lambda rank, chunk, root, everyone: frozenset([chunk]) if rank == root else None,
    "all-gather": lambda rank, chunk, root, everyone: frozenset([chunk]),
    "reduce-scatter": lambda rank, chunk, root, everyone: everyone if rank == chunk else None,
    "all-reduce": lambda rank, chunk, root, everyone: everyone,
}


def _must_be_possible(schedule, send, where):
    last = schedule.world_size - 1
    if not (0 <= send.src <= last and 0 <= send.dst <= last):
        raise ValueError(f"{where}: there are only the ranks 0 to {last}")
    if send.src == send.dst:
        raise ValueError(f"{where}: a rank needs no message to itself")
    if not 0 <= send.start < send.stop <= schedule.chunks:
        raise ValueError(f"{where}: expected a range within the chunks 0 to {schedule.chunks - 1}")
    if send.op not in ("reduce", "copy"):
        raise ValueError(f"{where}: the op must be 'reduce' or 'copy'")


def _combine(there, comes, op, where):
    if op == "reduce" and there & comes:
        raise ValueError(f"{where} would count {_ranks(there & comes)} twice")
    if op == "copy" and there == comes:
        raise ValueError(f"{where} already holds {_ranks(there)}: the message brings nothing new")
    return there | comes if op == "reduce" else comes


def _ranks(ranks):
    ranks = sorted(ranks)
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks)) or 'none'}"
