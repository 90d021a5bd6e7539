"""Run a function in several processes of this machine, one for each rank, and get its results in rank order.

    parent ─ torch.multiprocessing ─► rank 0 ┐            a temporary folder holds the file in which the ranks find one
                                   ─► rank 1 ┼─ gloo      another, their results, and what they print: so no port is
                                   ─► rank 2 ┘            chosen, and two runs never meet

Importing torch takes seconds, which new interpreters cost for every rank of every run. On Linux one helper process
imports it once and forks a rank whenever asked. The parent is never forked: a notebook has threads, and a copy of a
lock that another thread held is never released.
"""

import logging
import multiprocessing
import os
import pickle
import re
import signal
import sys
import tempfile
import threading
import time
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException, start_processes

from d2lmini import host
from d2lmini.distributed.errors import RankError
from d2lmini.distributed.failures import absent, lost_another, ranks
from d2lmini.distributed.join import as_batch, choose_interface

METHOD = "forkserver" if sys.platform == "linux" else "spawn"  # on macOS even a helper must not fork
GRACE_S = 1.0  # that a rank which has lost another waits, so that the other is the first to end


def run(fn, nprocs, *args, timeout=60.0, threads=None):
    """Call ``fn(rank, *args)`` in new processes joined by gloo.

    What the ranks print is printed here in rank order, each line after ``[rank]``. In every case all processes have
    ended when it returns or raises.

    Args:
        fn: A function that a new process can import: of a module, or of the script that is running. Inside,
            `torch.distributed` is initialised; RANK and WORLD_SIZE are set as torchrun does.
        nprocs: The number of processes.
        args: Further arguments of `fn`.
        timeout: Seconds for everything together.
        threads: Of torch, in each process; by default the processes share the cores.

    Returns:
        What the calls returned, in rank order.

    Raises:
        ValueError: A function or arguments that cannot be sent.
        RankError: A rank raised, died, returned what cannot be sent back, or had not returned in time.
    """
    if not isinstance(nprocs, int) or nprocs < 1:
        raise ValueError(f"expected a number of processes, 1 or more, got {nprocs!r}")
    payload, until = _pack(fn, args), time.monotonic() + timeout
    threads = threads or max(1, host.usable_cores() // nprocs)
    multiprocessing.set_forkserver_preload(["torch", "torch._dynamo"])  # optimisers need both
    with tempfile.TemporaryDirectory(prefix="d2lmini-", ignore_cleanup_errors=True) as folder:
        folder = Path(folder)
        settings = nprocs, folder, payload, timeout, threads, dict(os.environ), os.getcwd()
        context = start_processes(_rank, settings, nprocs, join=False, start_method=METHOD)
        try:
            _wait(context, folder, timeout, until)
        finally:
            for process in context.processes:
                process.kill()
                process.join()
            _show(folder, nprocs)
        return [pickle.loads((folder / f"{rank}.result").read_bytes()) for rank in range(nprocs)]


def _pack(fn, args):
    """Return `fn` and `args` as bytes.

    Raises:
        ValueError: When another process could not make them anew.
    """
    in_a_notebook = getattr(fn, "__module__", "") == "__main__" and not hasattr(sys.modules["__main__"], "__file__")
    try:
        if not callable(fn) or in_a_notebook:
            raise ValueError("it is no function, or was defined in a notebook or at a prompt")
        return pickle.dumps((fn, args))
    except Exception as error:
        raise ValueError(
            f"run() cannot send {fn!r} with its arguments to new processes: {error}. Put the function at "
            "the top level of a module (a .py file beside the notebook), not inside another function, "
            "import it, and give it arguments that can be pickled"
        ) from None


def _wait(context, folder, timeout, until):
    """Return once every rank has. Raises RankError."""
    logging.getLogger("torch.multiprocessing.spawn").setLevel(logging.ERROR)  # it warns of every rank that it ends
    nprocs = len(context.processes)
    try:
        while not context.join(until - time.monotonic()):
            if time.monotonic() >= until:
                late = [rank for rank in range(nprocs) if not (folder / f"{rank}.result").exists()] or range(nprocs)
                raise RankError(f"{ranks(late)} of {nprocs} had not returned after {timeout:g} s", late[0])
    except ProcessRaisedException as error:
        lines = re.findall(r"(?m)^ .*\n(\S.*)", error.msg)  # of a traceback, what comes after the last indented line
        raise RankError(f"rank {error.error_index} of {nprocs} raised {lines[-1]}", error.error_index) from error
    except ProcessExitedException as error:
        how = f"was killed by {error.signal_name}" if error.signal_name else f"ended with exit code {error.exit_code}"
        raise RankError(f"rank {error.error_index} of {nprocs} {how}", error.error_index) from None


def _show(folder, nprocs):
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        for rank in range(nprocs):
            path = folder / f"{rank}.{name}"
            for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else ():
                print(f"[{rank}] {line}", file=stream)


def _rank(rank, nprocs, folder, payload, timeout, threads, environment, where):
    """Be one rank: what happens in its process. environment, where: the parent's, for its helper may be older."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C in a terminal reaches every process
    threading.Thread(target=_end_with_parent, daemon=True).start()
    for stream, number, name in ((sys.stdout, 1, "out"), (sys.stderr, 2, "err")):
        os.dup2(os.open(folder / f"{rank}.{name}", os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)
    os.chdir(where)
    os.environ.clear()
    os.environ.update(environment, RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(nprocs))
    torch.set_num_threads(threads)
    as_batch()
    choose_interface("127.0.0.1")
    store = dist.FileStore(str(folder / "store"), nprocs)
    # The parent's limit comes first and names the ranks; gloo's own, a little later, is for a parent that is stopped.
    dist.init_process_group("gloo", store=store, rank=rank, world_size=nprocs, timeout=timedelta(seconds=timeout + 30))
    absent(store, "joined", rank, nprocs, timeout)  # gloo warns of a rank that ends while others still connect to it
    fn, args = pickle.loads(payload)
    try:
        result = pickle.dumps(fn(rank, *args))
    except SystemExit as stop:
        raise RuntimeError(f"the function ended its process with exit code {stop.code}") from stop
    except Exception as error:
        if lost_another(error):
            time.sleep(GRACE_S)
        raise
    (folder / f"{rank}.result").write_bytes(result)
    absent(store, "returned", rank, nprocs, timeout)  # a socket closed while others still receive looks like a death
    dist.destroy_process_group()


def _end_with_parent():
    multiprocessing.parent_process().join()
    os._exit(1)
