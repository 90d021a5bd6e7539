"""Labs that diagnose a failure: the reader says which rank, which line and why, and then mends the program."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from d2lmini.checks.mechanism import Wrong, brief, number

CAUSES = (
    "skips a collective",
    "same examples",
    "collects on one rank",
    "state on one rank",
    "everything on one GPU",
    "another order",
    "gradients not averaged",
)


@dataclass(frozen=True)
class Failure:
    """What a diagnosis must say of a program.

    Attributes:
        rank: The rank at fault, or "all".
        lines: The letters of the lines, each of which is a right answer.
        cause: One of `CAUSES`.
        hints: Why it is not this line, by its letter; under "rank" and "cause", where to look.
    """

    rank: int | str
    lines: str
    cause: str
    hints: Mapping[str, str]


FAILURES = {
    "hanging_job": Failure(
        2,
        "C",
        "skips a collective",
        {
            "rank": "the ranks in the all-reduce wait; for whom?",
            "A": "every rank runs A, and runs it once",
            "B": "every rank has as many batches",
            "D": "the ranks wait there; which line keeps one of them from it?",
            "E": "no rank waits there",
            "cause": "which call does one rank make less often than the others?",
        },
    ),
    "repeated_epoch": Failure(
        "all",
        "C",
        "same examples",
        {
            "rank": "does any rank do something else than the others?",
            "A": "equal seeds are usual; which object lets them decide what a rank reads?",
            "B": "DDP averages the gradients, as it should",
            "D": "the number of epochs is right; how many steps has each?",
            "E": "every rank computes its gradients once a step, as it should",
            "cause": "compare what the ranks compute in a step",
        },
    ),
    "full_rank": Failure(
        0,
        "BC",
        "collects on one rank",
        {
            "rank": "the error names the rank whose GPU is full",
            "A": "every rank keeps its own logits, and they fit",
            "D": "labels are small: one number an example",
            "E": "the memory is full before E",
            "cause": "what does this rank hold that the others do not?",
        },
    ),
    "lone_resume": Failure(
        0,
        "C",
        "state on one rank",
        {
            "rank": "which rank does something that the others do not?",
            "A": "DDP has broadcast rank 0's weights when it was made; what changed them later?",
            "B": "every rank makes an equal optimiser",
            "D": "the file holds the right state; which ranks read it?",
            "E": "E loads what was saved; which ranks run it?",
            "cause": "compare what the ranks hold after the call",
        },
    ),
    "left_over": Failure(
        "all",
        "BE",
        "gradients not averaged",
        {
            "rank": "does any rank do something else than the others?",
            "A": "DDP makes all replicas equal here; which update makes them differ?",
            "C": "the factor is the same on all ranks, so it lets no replica differ",
            "D": "the gradients of this update have been averaged; have those of every update?",
            "cause": "whose batches are in the gradients of the last update?",
        },
    ),
    "one_order": Failure(
        "all",
        "C",
        "another order",
        {
            "rank": "does any rank do something else than the others?",
            "A": "a sum that begins with zero would differ as well: what comes next is the neighbour's",
            "B": "every tensor arrives whole, on every rank",
            "D": "every rank passes on what it received; that gives each of them every tensor",
            "E": "each rank returns what it has added up; what makes that differ?",
            "cause": "every rank has added the same numbers",
        },
    ),
}


def diagnosed(name: str, said: Mapping[str, Any], run: Callable[[], str]) -> str:
    """Return what a lab's check says when the diagnosis is right and the program mended.

    Args:
        name: The lab's, in `FAILURES`.
        said: The reader's diagnosis: rank, line and cause, by these names.
        run: Runs the reader's program: it returns what is right about it, or raises Wrong with the symptom.

    Raises:
        Wrong: The program still fails, or the diagnosis is wrong; both are told.
    """
    failure = FAILURES[name]
    fault = _fault(failure, said)
    try:
        right = run()
    except Wrong as wrong:
        raise Wrong(
            f"{str(wrong).rstrip('.')}. Your diagnosis: {fault or 'it is right; now mend the program'}"
        ) from wrong
    if fault:
        raise Wrong(f"the program is mended. Your diagnosis: {fault}")
    return f"rank {failure.rank}, line {_letter(said['line'])}, {failure.cause}; mended: {right}"


def _letter(line):
    return str(line).strip("# ").upper()


def _fault(failure, said):
    """Return what is wrong with a diagnosis, None where nothing is."""
    parts = ("rank", "line", "cause")
    if not set(said) <= set(parts):
        return f"expected rank=, line= and cause=, got {', '.join(said)}"
    missing = [part for part in parts if said.get(part) is None]
    if missing:
        return f"say the {', the '.join(missing)}"
    rank = said["rank"] if said["rank"] == "all" else number(said["rank"])
    if rank is None:
        return f'rank {brief(said["rank"])}: expected a rank\'s number or "all"'
    if rank != failure.rank:
        return f"rank {brief(said['rank'])}: {failure.hints['rank']}"
    line = _letter(said["line"])
    if line not in set(failure.lines):
        return f"line {brief(said['line'])}: {failure.hints.get(line, 'expected the letter of a line')}"
    if said["cause"] not in CAUSES:
        return f"cause {brief(said['cause'])}: expected one of {', '.join(map(repr, CAUSES))}"
    if said["cause"] != failure.cause:
        return f"cause {brief(said['cause'])}: {failure.hints['cause']}"
    return None
