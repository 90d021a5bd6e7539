"""Whether all ranks are about to do the same: what turns a hang, or a wrong sum, into a sentence.

Every call has a number, counted by each rank, and a description. Ranks leave it in the group's store before the first
call of a kind, and again when a message has not come:

    call 0   rank 0: ring of [4] float32
             rank 1: ring of [5] float32
             rank 2: (nothing: it is missing)
"""

import zlib
from datetime import timedelta

import torch
import torch.distributed as dist

from d2lmini.distributed.errors import LostRankError
from d2lmini.distributed.failures import absent, ranks

MOMENT_S = 1.0  # that a rank whose message did not come leaves the others to describe their calls


class Handshake:
    """Compares the calls of the ranks. Made after joining, in the same order on every rank.

    Args:
        timeout: Seconds to wait for another rank, by default as long as the group's own calls do.
    """

    def __init__(self, timeout=None):
        self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
        store = dist.distributed_c10d._get_default_store()  # torch has public names neither for this nor for the limit
        group = dist.group.WORLD._get_backend(torch.device("cpu"))
        self.limit = timedelta(seconds=timeout) if timeout else group.options._timeout
        self.store = dist.PrefixStore(f"handshake{store.add(f'handshakes/{self.rank}', 1)}", store)
        self.number, self.description, self.call, self.known = -1, "", "", set()

    def begin(self, description):
        """Begin the next call, and compare its description with the other ranks' if it is new.

        Returns:
            The call's key, 31 bits that no other call has.

        Raises:
            ValueError: The ranks differ.
            TimeoutError: Some do not come; they are named.
        """
        self.number += 1
        self.description, self.call = description, f"call {self.number} ({description})"
        missing = [] if description in self.known else self.compare(self.limit.total_seconds())
        if missing:
            raise TimeoutError(f"{self.call} waited {self.limit.total_seconds():g} s for {ranks(missing)}")
        self.known.add(description)
        return zlib.crc32(self.call.encode()) >> 1

    def compare(self, seconds):
        """Return the ranks that leave no description of this call within so many seconds.

        Raises:
            ValueError: The descriptions differ.
        """
        place, does = f"call{self.number}", {}
        missing = absent(self.store, place, self.rank, self.world_size, seconds, self.description)
        for rank in (rank for rank in range(self.world_size) if rank not in missing):
            does.setdefault(self.store.get(f"{place}/{rank}").decode(), []).append(rank)
        if len(does) > 1:
            said = "; ".join(f"{ranks(who)} {what}" for what, who in does.items())
            raise ValueError(f"the ranks disagree in call {self.number}: {said}")
        return missing

    def lost(self, peer, late):
        """Return the error for a rank that did not answer in this call, because it has ended or is `late`.

        Raises:
            ValueError: It is in another call.
        """
        gone = ranks(self.compare(MOMENT_S) or [peer])
        how = f"timed out after {self.limit.total_seconds():g} s waiting for" if late else "lost"
        return LostRankError(f"{self.call}: rank {self.rank} {how} {gone}")
