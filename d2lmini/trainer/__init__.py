"""The multi-GPU trainer and its command line.

    cli ── options         python -m d2lmini.train
     │
    trainer ── settings    one loop of epochs; history, losses, checkpoint, rng: what it keeps
     │
    engines                replicas (devices of one process) or processes (one for each device), ddp
     ├── replicate, replica_state    copies of a model and what must stay equal in them
     └── compiled, cuda_graphs       a step as one program
"""

from d2lmini.trainer.checkpoint import CheckpointError
from d2lmini.trainer.history import DivergedError, History
from d2lmini.trainer.trainer import Trainer

__all__ = ["CheckpointError", "DivergedError", "History", "Trainer"]
