"""Processes: start them, join them, and reduce over them by messages.

from a notebook, on this machine         spawn ┐
from torchrun, on one machine or several  join ┴─► torch.distributed ───► send_receive  schedules by isend and irecv
                                            │                               │
what a rank says when it fails         failures                          handshake     do all do the same?

errors: what training and processes may end in, each in one line
"""

from d2lmini.distributed.errors import RankError
from d2lmini.distributed.send_receive import Messages
from d2lmini.distributed.spawn import run

__all__ = ["Messages", "RankError", "run"]
