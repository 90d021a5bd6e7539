"""What a trainer's replicas run on: one process with all of them, or a process for each.

    "replicas"   one process; gradients summed by `collectives`         Trainer(…, devices=["cuda:0", "cuda:1"])
    "allreduce"  a process for each rank; gradients summed by messages  torchrun --nproc-per-node=2 …
    "ddp"        a process a rank; torch's DistributedDataParallel      torchrun --nproc-per-node=2 …

The processes must have joined `torch.distributed` before: `distributed.run` and `distributed.join` see to it.
"""

import os
from functools import partial

import torch
import torch.distributed as dist

from d2lmini.data_parallel import gradients
from d2lmini.devices import try_gpu
from d2lmini.trainer.comm import Devices, Processes


def choose_devices(devices, engine):
    """Return the devices of this process: by default the first accelerator, or else the CPU.

    In a process of several it is the accelerator with its local rank's number. Raises ValueError for no device, and in
    a process of several for more than one; RuntimeError outside of a group.
    """
    local = 0 if engine == "replicas" else int(os.environ.get("LOCAL_RANK", 0))
    devices = [torch.device(d) for d in ([try_gpu(local)] if devices is None else devices)]
    if not devices:
        raise ValueError("expected at least one device, got none")
    if engine != "replicas" and not dist.is_initialized():
        raise RuntimeError("this process has joined no others: start it with torchrun, or with distributed.run")
    if engine != "replicas" and len(devices) != 1:
        raise ValueError(f"a process has one device when each has a replica, got {', '.join(map(str, devices))}")
    return devices


def make_comm(settings, devices):
    """Return the `Devices` or the `Processes` that the settings ask for."""
    if settings.engine == "replicas":
        return Devices(devices, gradients.summing(settings.allreduce, devices), settings.buckets)
    return Processes(devices[0], None if settings.engine == "ddp" else _allreduce(settings.allreduce), settings.buckets)


def _allreduce(algorithm):
    """Return the function that replaces a tensor by the sum over the ranks."""
    from d2lmini.distributed import Messages  # only who asks for processes needs what a system has for them

    if callable(algorithm):
        return algorithm
    if "simccl" in dist.get_backend_config():
        raise ValueError('allreduce sends messages between processes: on simulated ranks choose the engine "ddp", and '
                         "sim.spawn(…, allreduce=…) for its schedule")  # fmt: skip
    return partial(Messages().allreduce, algorithm=algorithm or "ring")
