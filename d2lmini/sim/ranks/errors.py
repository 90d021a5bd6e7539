"""What goes wrong between ranks, each told in one line."""


class RankError(RuntimeError):
    """Rank `rank` failed, or is the first that is late; the cause, ``__cause__``, tells what its function raised."""

    def __init__(self, message, rank):
        super().__init__(message)
        self.rank = rank


class MismatchError(RuntimeError):
    """Ranks of a group call what does not fit together: another collective, shape, dtype, operation or root."""


class DeadlockError(RuntimeError):
    """No rank can go on: each waits for a call that no rank will make any more."""


class Stopped(BaseException):
    """Ends a rank because another one failed; no ``except Exception`` of a program holds it up."""
