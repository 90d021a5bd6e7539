"""The calls of ``dist.new_group``: all ranks make all of them, in the same order, also for groups that they are not in.

torch names a group by the number of the call, so a rank that leaves one out takes part in other groups than it means.
"""

from simgpu.ranks.errors import MismatchError


class NewGroups:
    """The calls that `size` ranks have made."""

    def __init__(self, size):
        self._counts, self._first = [0] * size, []  # the rank that made each call first, and the group's ranks

    def call(self, rank, ranks):
        """Note a rank's next call, for a group of `ranks`; raises MismatchError where another rank's was for others."""
        number = self._counts[rank]
        self._counts[rank] += 1
        if number == len(self._first):
            self._first.append((rank, ranks))
        first, wanted = self._first[number]
        if ranks != wanted:
            raise MismatchError(
                f"new_group #{number + 1}: rank {rank} has ranks {ranks}, rank {first} has {wanted}: "
                "all ranks must call it for every group, in the same order"
            )

    def lacking(self):
        """Return the first call that ranks left out as (its number, the group's ranks, those ranks), or None."""
        number = min(self._counts)
        if number == len(self._first):
            return None
        return number + 1, self._first[number][1], [rank for rank, count in enumerate(self._counts) if count == number]
