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

from d2lmini.devices import choice
from d2lmini.distributed.failures import absent, ranks
from d2lmini.timing import within

VARIABLES = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
MOST = 10**6  # of ranks, and of whatever else torchrun counts
CONNECT_S = 60.0  # that the store may take to answer: its process may have to load torch from a slow disk


def launched():
    """Return whether torchrun, or something that sets the same variables, started this process."""
    return all(name in os.environ for name in VARIABLES)


def rank():
    """Return this process's rank; 0 where it is alone.

    Raises:
        ValueError: For a variable that is no number.
    """
    return _number("RANK") if launched() else 0


def world_size():
    """Return the number of ranks.

    Raises:
        ValueError: For a variable that is no number.
    """
    return _number("WORLD_SIZE")


def _number(name, default=None):
    text = os.environ.get(name, default)
    if not text.isdecimal() or len(text) > len(str(MOST)) or int(text) > MOST:
        raise ValueError(f"the environment variable {name}: expected a whole number up to {MOST}, got {text!r}")
    return int(text)


def connect(seconds=CONNECT_S):
    """Return the store through which the ranks find one another, before they join; it is this attempt's own.

    Raises:
        ValueError: Environment variables that make no sense.
        TimeoutError: No store answers.
    """
    here, count = rank(), world_size()
    if not here < count:
        raise ValueError(f"the environment variables RANK and WORLD_SIZE: expected a rank below {count}, got {here}")
    address, port = os.environ["MASTER_ADDR"], _number("MASTER_PORT")
    attempt = "rendezvous"
    if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":  # torchrun keeps it for all attempts
        _must_count_alike()
        attempt = str(_number("TORCHELASTIC_RESTART_COUNT", "0"))
    try:
        store, *_ = within(seconds, next, dist.rendezvous("env://", timeout=timedelta(seconds=seconds + CONNECT_S)))
    except (dist.DistError, TimeoutError) as error:  # ours: torch's own comes late, with the frames of its source
        whom = "rank 0" if here else "other rank"
        raise TimeoutError(f"rank {here} found no {whom} at {address}:{port} within {seconds:g} s") from error
    store.set_timeout(timedelta(seconds=seconds))
    return dist.PrefixStore(attempt, store)


def _must_count_alike():
    """Refuse what would let attempts meet in one store: each machine counts its own restarts."""
    if _number("TORCHELASTIC_MAX_RESTARTS", "0") and _number("GROUP_WORLD_SIZE", "1") > 1:
        raise ValueError(
            "--max-restarts over several machines needs a store for each attempt: start torchrun with the "
            "environment variable TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1"
        )


def device(kind="auto"):
    """Return this rank's device: the GPU with its local rank's number where all ranks here can have one, else the CPU.

    Args:
        kind: "cpu" or "real" for no choice. For "auto" D2LMINI_DEVICES decides where it is set, and "sim" means the CPU
            there: simulated GPUs live in one process.

    Raises:
        RuntimeError: There are too few GPUs.
    """
    local, count = _number("LOCAL_RANK"), _number("LOCAL_WORLD_SIZE", "1")
    kind = choice() or kind if kind == "auto" else kind
    found = torch.cuda.device_count() if kind in ("auto", "real") else 0
    if max(local + 1, count) <= found:
        torch.cuda.set_device(local)
        return torch.device("cuda", local)
    if kind == "real":
        raise RuntimeError(f"expected {count} GPUs, one a process of this machine, found {found}: choose --kind cpu")
    return torch.device("cpu")


def join(store, device, timeout):
    """Join the other ranks through gloo, and for tensors on a GPU through NCCL.

    Args:
        store: What `connect` returned.
        device: This rank's.
        timeout: Seconds that a rank waits for another, here and in every collective call.

    Raises:
        TimeoutError: Some ranks do not come; they are named.
    """
    missing = absent(store, "joined", rank(), world_size(), timeout)
    if missing:
        raise TimeoutError(f"{ranks(missing)} had not begun after {timeout:g} s: raise --timeout if this is too short")
    if device.type == "cpu":
        as_batch()
    alone = _number("LOCAL_WORLD_SIZE", str(world_size())) == world_size()
    choose_interface("127.0.0.1" if alone else os.environ["MASTER_ADDR"])
    backend = "gloo" if device.type == "cpu" else "cpu:gloo,cuda:nccl"
    dist.init_process_group(
        backend, store=store, rank=rank(), world_size=world_size(), timeout=timedelta(seconds=timeout)
    )


def backend():
    """Return what carries gradients: "gloo", "nccl", "simccl" between simulated ranks; None where none have joined."""
    if not dist.is_initialized():
        return None
    return next((name for name in ("nccl", "simccl") if name in dist.get_backend_config()), "gloo")


def as_batch():
    """Let no thread of this process, when it wakes, push aside another that is running.

    Gloo's thread for the sockets polls, without sleeping, for a lock that a sender holds. Woken on the sender's core,
    it used to push the sender aside and then polled for what was left of its time slice, up to 4 ms: an all-reduce of
    1 KiB took 1.1 to 1.6 ms on average, gloo's own as well as ours, and takes 0.2 ms as a batch process (2 ranks on
    2 cores, Linux 6.18, torch 2.13).
    """
    if hasattr(os, "SCHED_BATCH"):
        with suppress(OSError):
            os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))


def choose_interface(address):
    """Let gloo use the network through which an address is reached, be it this machine's own.

    By default it looks up the host's name, which may fail, or mean another network.
    """
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((address, 9))  # sends nothing: it only chooses a route
        mine = probe.getsockname()[0]
        names = [name for name, found in psutil.net_if_addrs().items() if mine in (a.address for a in found)]
        if names:
            os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])
