"""What goes wrong between ranks, each told in one line."""

from torch.distributed import DistBackendError, DistStoreError


class RankError(RuntimeError):
    """Rank `rank` failed, or is the first that is late; the cause, ``__cause__``, tells what its function raised."""

    def __init__(self, message, rank):
        super().__init__(message)
        self.rank = rank


class MismatchError(RuntimeError):
    """Ranks of a group call what does not fit together: another collective, shape, dtype, operation or root."""


class DeadlockError(RuntimeError):
    """No rank can go on: each waits for a call that no rank will make any more."""


class TimedOutError(DeadlockError, DistBackendError):
    """The same where the program gave the call a timeout: only the rank that made it is told, and may go on."""


class StoreTimedOutError(DeadlockError, DistStoreError):
    """The same for a wait for a key of a store."""


def in_words(numbers):
    """Return ranks in words."""
    return f"rank {numbers[0]}" if len(numbers) == 1 else f"ranks {', '.join(map(str, numbers))}"


class Stopped(BaseException):
    """Ends a rank because another one failed; no ``except Exception`` of a program holds it up."""
