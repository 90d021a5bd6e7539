"""Run a function in several processes of this machine, one a rank, and get its results in rank order.

    parent ── pipe ──► rank 0 ┐                      results: pickled files in a temporary folder
           ── pipe ──► rank 1 ┼─ gloo over loopback  output:  one file a rank, printed by the parent in rank order
           ── pipe ──► rank 2 ┘                      the pipe: "done", "failed", "where?"; its end means "leave"

The ranks find one another through a file in that folder, so no port is chosen and two runs never meet.

How a process starts. Importing torch takes about a second of one core, so new interpreters (the `spawn` method) cost
that for every rank of every run. Where the system can fork, one helper process imports torch once and forks a rank in
some milliseconds whenever asked (`forkserver`). It has a single thread. The parent itself is never forked: it may hold
threads and locks (a notebook does), and a copy of a lock that another thread held is never released.
"""

import multiprocessing
import numbers
import os
import pickle
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from multiprocessing import connection

from d2lmini.distributed import worker
from d2lmini.hardware import host

GRACE_S = 0.5  # how long to wait for further reports after the first failure, to name the cause and not a consequence
LEAVE_S = 5.0  # how long a rank that has returned may take to leave


class RankError(RuntimeError):
    """A rank failed. `rank` is its number, `failures` a dictionary: rank -> what happened, for every rank that failed.

    The traceback in the rank's own process is shown as this error's cause.
    """

    def __init__(self, message, rank=None, failures=None):
        super().__init__(message)
        self.rank, self.failures = rank, failures or {}


class RankTimeoutError(RankError, TimeoutError):
    """Ranks had not returned when the time was up: `rank` is the first of them, `failures` says where each one was."""


class RemoteTraceback(Exception):
    """Shows the traceback of another process as the cause of an error in this one."""

    def __str__(self):
        return f"\n{self.args[0]}"


class Process:
    """One rank's process as its parent sees it: `failure` once it failed, `done` once it has returned."""

    def __init__(self, context, rank, *settings):
        self.rank, self.done, self.failure, self.traceback, self.place = rank, False, None, "", None
        self.lost = False  # whether it failed only because another rank had gone
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=worker.main, args=(rank, theirs, *settings), name=f"rank {rank}")
        self.started = False
        try:
            self.process.start()
        finally:
            theirs.close()

    def read(self):
        """Take what the process reported, or note that it has died."""
        with suppress(EOFError, OSError):
            while self.pipe.poll():
                kind, *details = self.pipe.recv()
                self.started = True
                if kind == "done":
                    self.done = True
                elif kind == "failed":
                    self.failure, self.traceback, self.lost = details
                elif kind == "where":
                    (self.place,) = details
        if self.pending and not self.process.is_alive():
            self.failure = death(self.process.exitcode)
            if not self.started:
                self.failure += " before its function began; a script must call run() under if __name__ == '__main__':"

    @property
    def pending(self):
        """Whether nothing is known yet of how it ended."""
        return not self.done and self.failure is None

    def ask(self):
        """Ask the process where it is; it answers through the pipe unless it is stopped or stuck."""
        with suppress(OSError):
            self.pipe.send("where")

    def end(self, at_once):
        """End the process: it leaves by itself when the pipe closes, and is killed where it must not or does not."""
        self.pipe.close()
        if not at_once:
            self.process.join(LEAVE_S)
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.process.close()


def run(fn, nprocs, *args, timeout=60.0, threads=None):
    """Call ``fn(rank, *args)`` in `nprocs` new processes joined by gloo, and return the results in rank order.

    fn: a function that a new process can import: of a module, or of the script that is running, or its name as
        ``"module:function"``. Inside, `torch.distributed` is initialised; RANK and WORLD_SIZE are set as torchrun does.
    timeout: seconds for everything together. threads: of torch, in each process; by default the processes share the
        cores. What the ranks print is printed here in rank order, each line after ``[rank]``.

    Raises ValueError for a function or arguments that cannot be sent, RankError for a rank that raises, dies or returns
    what cannot be sent back, RankTimeoutError (also a TimeoutError) for ranks that had not returned. In every case all
    processes have ended by then.
    """
    if not isinstance(nprocs, numbers.Integral) or nprocs < 1:
        raise ValueError(f"expected a number of processes, 1 or more, got {nprocs!r}")
    payload, deadline = pack(fn, args), time.monotonic() + timeout
    threads = threads or max(1, host.usable_cores() // nprocs)
    with tempfile.TemporaryDirectory(prefix="d2lmini-", ignore_cleanup_errors=True) as folder:
        # The helper that forks the ranks keeps the environment and folder of its start: they are sent anew.
        settings = (nprocs, folder, payload, timeout, threads, dict(os.environ), os.getcwd())
        processes, whole = [], False
        try:
            context = _context()
            for rank in range(nprocs):
                processes.append(Process(context, rank, *settings))
            _watch(processes, timeout, deadline)
            whole = True
        finally:
            for process in processes:
                process.pipe.close() if whole else None  # all may leave before the first is waited for
            for process in processes:
                process.end(at_once=not whole)
            _show(folder, nprocs)
        return [_load(folder, rank) for rank in range(nprocs)]


def pack(fn, args):
    """Return `fn` and `args` as bytes. Raises ValueError when another process could not make them anew."""
    if isinstance(fn, str):
        fn = resolve(fn)
    name, home = getattr(fn, "__qualname__", type(fn).__name__), getattr(fn, "__module__", None)
    inside = "<" in name or (home == "__main__" and not hasattr(sys.modules["__main__"], "__file__"))
    try:
        if inside:
            raise ValueError("it was defined in a notebook, at a prompt or inside another function")
        return pickle.dumps((fn, args))
    except Exception as error:
        what = f"the function {name}" if inside else f"{name} with its arguments"
        raise ValueError(
            f"run() cannot send {what} to new processes: {error}. Put the function at the top level of a module (a .py "
            "file beside the notebook), import it, and give it arguments that can be pickled"
        ) from None


def resolve(name):
    """Return the function that ``"module:function"`` names. Raises ValueError if there is none."""
    module, _, function = name.partition(":")
    try:
        return getattr(import_module(module), function)
    except (ImportError, AttributeError, ValueError) as error:
        raise ValueError(f'expected a function as "module:function", got {name!r}: {error}') from None


def death(code):
    """Return what a process's exit code says, negative for a signal as `multiprocessing` has it."""
    return f"was killed by {worker.signal_name(-code)}" if code < 0 else f"ended with exit code {code}"


def _context():
    """Return how processes are made. On macOS a fork without exec is unsafe even here, says Python's documentation."""
    if sys.platform != "linux":
        return multiprocessing.get_context("spawn")
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch", "torch._dynamo"])  # a second each; an optimiser needs both
    return context


def _watch(processes, timeout, deadline):
    """Return once every rank is done. Raises RankError, RankTimeoutError at the deadline."""
    while pending := [process for process in processes if process.pending]:
        _read(pending, deadline)
        if any(process.failure for process in processes):
            _failed(processes)
        if time.monotonic() >= deadline and any(process.pending for process in processes):
            _late(processes, timeout)


def _read(processes, deadline):
    """Wait for a report or a death until the deadline, and take it."""
    signs = [sign for process in processes for sign in (process.pipe, process.process.sentinel)]
    connection.wait(signs, max(0.0, deadline - time.monotonic()))
    for process in processes:
        process.read()


def _failed(processes):
    """Raise RankError for the cause, rather than for a rank that failed because another had gone."""
    until = time.monotonic() + GRACE_S
    while time.monotonic() < until and (pending := [process for process in processes if process.pending]):
        _read(pending, until)
    failed = [process for process in processes if process.failure]
    first = min(failed, key=lambda p: (p.lost, bool(p.traceback), p.rank))
    message = f"rank {first.rank} of {len(processes)} {first.failure}"
    error = RankError(message, first.rank, {process.rank: process.failure for process in failed})
    raise error from (RemoteTraceback(first.traceback) if first.traceback else None)


def _late(processes, timeout):
    """Raise RankTimeoutError that says which ranks had not returned, and where they were."""
    late = [process for process in processes if process.pending]
    for process in late:
        process.ask()
    until = time.monotonic() + 2 * GRACE_S
    while time.monotonic() < until and (silent := [p for p in late if p.place is None and p.pending]):
        _read(silent, until)
    places = {p.rank: f"was in {p.place}" if p.place else "gave no answer" for p in late}
    said = ", ".join(f"rank {rank} {place}" for rank, place in places.items())
    back = "".join(f", rank {process.rank} had" for process in processes if process.done)
    message = f"after {timeout:g} s, {len(late)} of {len(processes)} ranks had not returned{back}: {said}"
    raise RankTimeoutError(message, late[0].rank, places)


def _show(folder, nprocs):
    for name, stream in (("out", sys.stdout), ("err", sys.stderr)):
        for rank in range(nprocs):
            with suppress(FileNotFoundError), open(worker.path(folder, rank, name), encoding="utf-8") as file:
                for line in file:
                    print(f"[{rank}] {line.rstrip()}", file=stream)


def _load(folder, rank):
    with open(worker.path(folder, rank, "result"), "rb") as file:
        return pickle.load(file)
