"""What a trainer's replicas run on: one process with all of them, or a process for each.

    "replicas"   one process; gradients summed by `collectives`         Trainer(…, devices=["cuda:0", "cuda:1"])
    "allreduce"  a process a rank; summed by messages or shared memory  torchrun --nproc-per-node=2 …
    "ddp"        a process a rank; torch's DistributedDataParallel      torchrun --nproc-per-node=2 …

The processes must have joined `torch.distributed` before: `distributed.run` and `distributed.join` see to it.
"""

import os

import torch

from d2lmini.devices import try_gpu
from d2lmini.trainer.replicas import Replicas

NAMES = ("replicas", "allreduce", "ddp")


def find(name):
    """Return the class of an engine. Raises ValueError for a name that is none of `NAMES`."""
    if name not in NAMES:
        raise ValueError(f"engine: expected one of {', '.join(NAMES)}, got {name!r}")
    if name == "replicas":
        return Replicas
    from d2lmini.trainer.ddp import DdpReplica  # only who asks for processes needs what a system has for them
    from d2lmini.trainer.processes import ProcessReplica

    return DdpReplica if name == "ddp" else ProcessReplica


def choose(kind, devices):
    """Return the devices of this process and the number of replicas, of all processes.

    By default it is the first accelerator, in a process of several that with its local rank's number, or else the CPU.

    Raises ValueError for no device, and in a process of several for more than one; RuntimeError outside of a group.
    """
    local = 0 if kind is Replicas else int(os.environ.get("LOCAL_RANK", 0))
    devices = [torch.device(d) for d in ([try_gpu(local)] if devices is None else devices)]
    if not devices:
        raise ValueError("expected at least one device, got none")
    return devices, kind.count(devices)
