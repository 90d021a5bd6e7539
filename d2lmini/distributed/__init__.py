"""Processes: start them, join them, and reduce over them by messages or by shared memory.

    from a notebook, on this machine         spawn ┐                         ┌ messages        schedules by isend, irecv
    from torchrun, on one machine or several  join ┴─► torch.distributed ─►──┤
                                                │                            └ shared_memory   no message at all
    what a rank says when it fails         failures                             handshake      do all do the same?
"""

from d2lmini.distributed.messages import Messages
from d2lmini.distributed.spawn import RankError, RankTimeoutError, run

__all__ = ["Messages", "RankError", "RankTimeoutError", "run"]
