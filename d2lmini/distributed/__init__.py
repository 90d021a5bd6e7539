"""Processes: start them, join them, and reduce over them by messages.

    from a notebook, on this machine         spawn ┐
    from torchrun, on one machine or several  join ┴─► torch.distributed ───► messages     schedules by isend and irecv
                                                │                               │
    what a rank says when it fails         failures                          handshake     do all do the same?
"""

from d2lmini.distributed.messages import Messages
from d2lmini.distributed.spawn import RankError, run

__all__ = ["Messages", "RankError", "run"]
