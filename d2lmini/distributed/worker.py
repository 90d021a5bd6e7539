"""What happens inside one rank's process: set up, call the function, report, and leave when the parent says so."""

import multiprocessing
import os
import pickle
import shutil
import signal
import socket
import sys
import sysconfig
import threading
import traceback
from contextlib import suppress
from datetime import timedelta
from multiprocessing import connection
from pathlib import Path

import torch
import torch.distributed as dist

ORPHAN_S = 0.5  # how long after the pipe's end a rank looks whether its parent has ended too
LIBRARIES = (str(Path(torch.__file__).parent), sysconfig.get_path("stdlib"), "<frozen")


class Line:
    """The pipe to the parent, attended by a thread: it says where the rank is, and ends it with its parent.

    Where the parent was killed, the thread also removes the `folder` that the parent would have removed.
    """

    def __init__(self, pipe, folder):
        self.pipe, self.main, self.finished, self.released = pipe, threading.get_ident(), False, threading.Event()
        self.folder = folder
        self._sending = threading.Lock()
        threading.Thread(target=self._attend, name="line to the parent", daemon=True).start()

    def send(self, *message):
        """Tell the parent something."""
        with self._sending, suppress(OSError):
            self.pipe.send(message)

    def _attend(self):
        with suppress(EOFError, OSError):
            while self.pipe.recv() == "where":
                self.send("where", place(sys._current_frames()[self.main]))
        if not self.finished:
            if connection.wait([multiprocessing.parent_process().sentinel], ORPHAN_S):
                shutil.rmtree(self.folder, ignore_errors=True)
            os._exit(1)
        self.released.set()


def main(rank, pipe, world_size, folder, payload, timeout, threads, environment, where):
    """Run one rank: `payload` is the pickled function and its arguments, `where` the parent's working folder."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C in a terminal reaches every process: the parent decides
    redirect(folder, rank)
    as_batch()
    line = Line(pipe, folder)
    line.send("started")
    try:
        os.chdir(where)
        os.environ.clear()
        os.environ.update(environment)
        torch.set_num_threads(threads)
        os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world_size))
        report = call(rank, world_size, folder, payload, timeout)
    except BaseException as error:
        report = ("failed", *describe(error))
    sys.stdout.flush()
    sys.stderr.flush()
    line.finished = True
    line.send(*report)
    line.released.wait()  # its peers may still be receiving: a socket closed now would look like a death
    if dist.is_initialized():
        dist.destroy_process_group()


def call(rank, world_size, folder, payload, timeout):
    """Join the process group, call the function, store its result; return the report for the parent."""
    try:
        fn, args = pickle.loads(payload)
    except Exception as error:
        what = f"could not import what it has to run: {error}; the function must stand at the top level of a module"
        return "failed", what, traceback.format_exc(), False
    loopback()
    # The parent's limit comes first and names the ranks; gloo's own, a little later, is for a parent that is stopped.
    dist.init_process_group("gloo", init_method=Path(folder, "rendezvous").as_uri(), rank=rank, world_size=world_size,
                            timeout=timedelta(seconds=timeout + 30))  # fmt: skip
    result = fn(rank, *args)
    try:
        data = pickle.dumps(result)
    except Exception as error:
        kind = type(result).__name__
        return "failed", f"returned a {kind} that cannot be pickled: {error}", traceback.format_exc(), False
    Path(path(folder, rank, "result")).write_bytes(data)
    return ("done",)


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


def describe(error):
    """Return what the parent is told of an exception: a sentence, the traceback, whether a peer's end explains it."""
    lost = isinstance(error, ConnectionError) or (isinstance(error, RuntimeError) and "by peer" in str(error))
    return f"raised {type(error).__name__}: {error}", "".join(traceback.format_exception(error)), lost


def redirect(folder, rank):
    """Send what this process prints, from Python or from C++, to the rank's files."""
    for stream, number, name in ((sys.stdout, 1, "out"), (sys.stderr, 2, "err")):
        file = os.open(path(folder, rank, name), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        os.dup2(file, number)
        os.close(file)
        stream.reconfigure(encoding="utf-8", errors="backslashreplace", line_buffering=True)


def loopback():
    """Keep gloo on this machine: no look-up of the host's name, which may fail or answer with another machine."""
    names = [name for name in ("lo", "lo0") if name in interfaces()]
    if names:
        os.environ.setdefault("GLOO_SOCKET_IFNAME", names[0])


def interfaces():
    """Return the names of the network interfaces, or none where the system does not tell."""
    with suppress(OSError, AttributeError):
        return [name for _, name in socket.if_nameindex()]
    return []


def path(folder, rank, name):
    """Return the path of one of a rank's files: its output, its errors or its result."""
    return os.path.join(folder, f"rank{rank}.{name}")


def place(frame):
    """Return where a thread is: the innermost function that is not a library's, and what it called in torch."""
    stack = frames(frame)
    own = [i for i, f in enumerate(stack) if not f.f_code.co_filename.startswith(LIBRARIES)]
    here = stack[own[-1]] if own else stack[-1]
    name = f"{here.f_globals.get('__name__', '?')}.{here.f_code.co_name}"
    called = [f.f_code.co_name for f in stack[own[-1] + 1 :] if f.f_code.co_name != "wrapper"] if own else []
    return f"{name}, which called {called[0]}" if called else name


def frames(frame):
    """Return a thread's frames, outermost first."""
    found = []
    while frame is not None:
        found.insert(0, frame)
        frame = frame.f_back
    return found


def signal_name(number):
    """Return a signal's name, such as SIGKILL, or its number where it has none."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
