"""The multi-GPU trainer and its command line.

cli ── options                 python -m d2lmini.train: what may be asked for
 │        └── settings         the trainer's arguments, and every rule about them and those of the command line
 │
trainer                        one loop of epochs
 ├── step                      a step: shards, losses, gradients, update; over a comm
 │    ├── comm                 the devices of one process, or a process for each of torch.distributed
 │    └── ddp_reducer          gradients summed by torch's DistributedDataParallel
 ├── history                   what a run recorded; losses, read many at a time
 ├── state ── rng              what a checkpoint holds, and whether a run may have left it
 │    └── fingerprint          what decides a run: the same in a checkpoint and on all ranks
 └── checkpoint ── atomic_files    the file: whole, or not there
by_cells                       classes that a notebook writes a method a cell
"""

from d2lmini.distributed.errors import CheckpointError, DivergedError
from d2lmini.trainer.by_cells import HyperParameters, add_to_class
from d2lmini.trainer.history import History
from d2lmini.trainer.settings import Settings
from d2lmini.trainer.trainer import Trainer

__all__ = ["CheckpointError", "DivergedError", "History", "HyperParameters", "Settings", "Trainer", "add_to_class"]
