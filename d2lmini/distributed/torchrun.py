"""Joining the other processes that torchrun started: its environment variables, the device, the network, the group.

    torchrun ── RANK, LOCAL_RANK, WORLD_SIZE, MASTER_ADDR, … ──► this process ──► its store ──► gloo, or NCCL on GPUs
"""

import os
import socket
from contextlib import suppress
from datetime import timedelta

import psutil
import torch
import torch.distributed as dist

from d2lmini.distributed.rollcall import attempt
from d2lmini.distributed.worker import as_batch, loopback

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
WAIT_S = 1800.0  # that a message may take: `watch`, or who started the processes, loses patience earlier


def launched():
    """Return whether torchrun, or something that sets the same variables, started this process."""
    return all(name in os.environ for name in VARIABLES)


def rank():
    """Return this process's rank; 0 where it is alone."""
    return int(os.environ["RANK"]) if launched() else 0


def world_size():
    """Return the number of ranks."""
    return int(os.environ["WORLD_SIZE"])


def one_machine():
    """Return whether all ranks are on this machine, as torchrun's variables have it."""
    return os.environ.get("LOCAL_WORLD_SIZE", os.environ["WORLD_SIZE"]) == os.environ["WORLD_SIZE"]


def connect():
    """Return the store through which the ranks find one another, before they join; what is in it is this attempt's.

    Raises TimeoutError where rank 0 does not come, RuntimeError where there is no store.
    """
    store, number, count = next(dist.rendezvous("env://"))
    return dist.PrefixStore(attempt(store, number, count), store)


def device(kind="auto"):
    """Return this rank's device: the GPU with its local rank's number where all ranks here can have one, else the CPU.

    kind: "cpu" or "real" for no choice. Raises RuntimeError where there are too few GPUs.
    """
    local, count = int(os.environ["LOCAL_RANK"]), int(os.environ.get("LOCAL_WORLD_SIZE", 1))
    found = torch.cuda.device_count() if kind != "cpu" else 0
    if max(local + 1, count) <= found:
        torch.cuda.set_device(local)
        return torch.device("cuda", local)
    if kind == "real":
        raise RuntimeError(f"expected {count} GPUs, one a process of this machine, found {found}: choose --kind cpu")
    return torch.device("cpu")


def join(store, device):
    """Join the others through gloo, and for tensors on a GPU through NCCL."""
    if device.type == "cpu":
        as_batch()
    if one_machine():
        loopback()
    else:
        _choose_interface(os.environ["MASTER_ADDR"])
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(backend, store=store, rank=rank(), world_size=world_size(),
                            timeout=timedelta(seconds=WAIT_S))  # fmt: skip


def backend():
    """Return the name of what carries gradients: "gloo" or "nccl"."""
    return "nccl" if "nccl" in dist.get_backend_config() else "gloo"


def _choose_interface(master):
    """Let gloo use the network through which the master is reached; by default it takes what the host's name means."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((master, 9))  # sends nothing: it only chooses a route
        mine = probe.getsockname()[0]
        names = [name for name, found in psutil.net_if_addrs().items() if mine in (a.address for a in found)]
        if names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])
