"""Whether all ranks are about to do the same, and who is missing: what turns a hang into a sentence.

Every call has a number, counted in each process, a description, and a mark that tells schedules of one name apart. Its
tags are made from all three, so a message of one call is never taken for one of another. The ranks leave descriptions
and marks in the group's store under the call's number:

    call 0   rank 0: ring all-reduce, sum of [4] float32          before the first call of a kind, and
             rank 1: ring all-reduce, sum of [5] float32          when a message has not come in time
             rank 2: (nothing: it is missing)
"""

import time
import zlib
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from itertools import count

import torch
import torch.distributed as dist

PATIENCE_S = 1.0  # how long a rank whose message did not come waits for the others' descriptions
_numbers = count()
_agreed = set()


@dataclass
class Call:
    """One collective call as this rank sees it."""

    number: int
    rank: int
    world_size: int
    op: str
    combine: str
    description: str
    mark: int
    key: int

    @classmethod
    def next(cls, name, tensor, op, mark=0):
        """Return this process's next call: a schedule's name and mark, the tensor, the op."""
        number = next(_numbers)
        description, kind = _describe(name, op, tensor.shape, tensor.dtype, mark)
        key = zlib.crc32(number.to_bytes(8, "little"), kind)
        combine = "sum" if op == "mean" else op
        return cls(number, dist.get_rank(), dist.get_world_size(), op, combine, description, mark, key)

    def tag(self, number):
        """Return the tag of the segment of this number: 31 bits, as gloo has them."""
        return (self.key + number) & 0x7FFFFFFF


@lru_cache(maxsize=1024)
def _describe(name, op, shape, dtype, mark):
    """Return the description of a kind of call, and its checksum with the mark."""
    description = f"{name}, {op} of {list(shape)} {str(dtype).removeprefix('torch.')}"
    return description, zlib.crc32(description.encode(), mark)


def must_agree(call, timeout, check=None):
    """Raise ValueError where a rank is about to do something else, TimeoutError where one does not come.

    Unless `check` is given, only kinds of call that were not checked before are: it takes some milliseconds.
    """
    if check or (check is None and (call.description, call.mark) not in _agreed):
        _compare(call, _gather(call, timeout), timeout)
        _agreed.add((call.description, call.mark))


def whom_it_lacks(call, move, timeout, error):
    """Return the error for a message that did not come: what `error`, from gloo, means for this call."""
    here, late = f"{call.description}: in step {move.step}, rank {call.rank}", "Timed out" in str(error)
    try:
        must_not_differ(call, timeout)
    except ValueError as found:
        return found
    except TimeoutError as found:
        if late:
            return found
    if late:
        return TimeoutError(f"{here} waited {timeout:g} s for rank {move.peer}")
    return ConnectionError(f"{here} lost rank {move.peer}, which has ended or given up")


def must_not_differ(call, timeout):
    """Raise as `must_agree` does, from what the ranks leave in the store within a moment."""
    _compare(call, _gather(call, PATIENCE_S), timeout)


def group_timeout():
    """Return the seconds that the group's calls wait for another rank; torch has no public name for them."""
    return dist.group.WORLD._get_backend(torch.device("cpu")).options._timeout.total_seconds()


def default_store():
    """Return the store in which the ranks found one another; torch has no public name for it."""
    return dist.distributed_c10d._get_default_store()


def _gather(call, seconds):
    """Leave this rank's description and mark; return those that the ranks leave within so many seconds, by rank."""
    store, until, found = default_store(), time.monotonic() + seconds, {}
    keys = {rank: f"d2lmini/call{call.number}/rank{rank}" for rank in range(call.world_size)}
    store.set(keys[call.rank], f"{call.mark:08x} {call.description}")
    for rank, key in keys.items():
        try:
            store.wait([key], timedelta(seconds=max(0.01, until - time.monotonic())))
        except RuntimeError:  # the file's store says "Wait timeout"
            continue
        found[rank] = tuple(store.get(key).decode().split(" ", 1))
    return found


def _compare(call, found, timeout):
    """Raise ValueError naming the ranks by what they do, or TimeoutError naming those that left nothing."""
    does = {}
    for rank, kind in found.items():
        does.setdefault(kind, []).append(rank)
    if len(does) > 1:
        namesakes = len({description for _, description in does}) < len(does)
        mark, hint = (" ({})", "; one name, but not one schedule: another root?") if namesakes else ("", "")
        said = "; ".join(f"{_ranks(who)} {what}{mark.format(number)}" for (number, what), who in does.items())
        raise ValueError(f"the ranks disagree in call {call.number}: {said}{hint}")
    missing = [rank for rank in range(call.world_size) if rank not in found]
    if missing:
        raise TimeoutError(f"call {call.number} ({call.description}) waited {timeout:g} s for {_ranks(missing)}")


def _ranks(ranks):
    return f"rank{'s' * (len(ranks) != 1)} {', '.join(map(str, ranks))}"
