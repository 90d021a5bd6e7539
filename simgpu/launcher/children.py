"""Processes that a program starts itself, on ranks: ``torch.multiprocessing.spawn`` and ``Process``.

A ``Process`` whose target is the program's own becomes a rank; those of libraries, as DataLoader's workers, stay
processes. The ranks must start together, so they do when the program first waits for one of them.
"""

import contextlib
import functools
import sys
import traceback
from multiprocessing import process, queues

import torch.multiprocessing as mp
from torch.multiprocessing import ProcessExitedException, ProcessRaisedException

from simgpu.launcher import signals
from simgpu.launcher.output import of_rank
from simgpu.ranks.errors import DeadlockError, MismatchError, RankError, Stopped
from simgpu.ranks.modules import is_programs
from simgpu.ranks.sleeping import nap
from simgpu.ranks.spawn import start
from simgpu.torch_glue.here import here

_START, _JOIN, _ALIVE = process.BaseProcess.start, process.BaseProcess.join, process.BaseProcess.is_alive
_CODE = process.BaseProcess.exitcode


def entries(recorder):
    """Yield (owner, name, what takes its place)."""
    spawned = functools.partial(_spawn, recorder)
    for owner in (mp, sys.modules["torch.multiprocessing.spawn"]):
        yield owner, "start_processes", spawned
        yield owner, "spawn", spawned
    run = functools.partial(_run, recorder)
    yield process.BaseProcess, "start", _start
    yield process.BaseProcess, "join", lambda child, timeout=None: run(child) or _JOIN(child, timeout)
    yield process.BaseProcess, "is_alive", lambda child: _alive(run, child)
    yield process.BaseProcess, "exitcode", property(lambda child: _code(run, child))
    for kind in (queues.Queue, queues.SimpleQueue):
        yield kind, "get", _turning(kind.get, run)
    yield from signals.entries()


@contextlib.contextmanager
def exits(recorder):
    """At the end of a rank's program do what Python does there: wait for its processes, call what it registered."""
    rank = here()
    rank.children, rank.at_exit, rank.handlers = [], [], {}
    rank.start_children = functools.partial(_run_all, recorder, rank)
    try:
        yield
        _run_all(recorder, rank)
    finally:
        for function, args, options in reversed(rank.at_exit):
            function(*args, **options)


# -- torch.multiprocessing.spawn --------------------------------------------------------------------------------------


def _spawn(recorder, fn, args=(), nprocs=1, join=True, daemon=False, start_method="spawn"):
    """As torch's, on ranks."""
    context = Context(recorder, fn, args, nprocs)
    if not join:
        return context
    context.join()
    return None


class Context:
    """What ``spawn(join=False)`` returns: its ranks start when they are waited for."""

    def __init__(self, recorder, fn, args, nprocs):
        self._start, self.processes = functools.partial(_start_ranks, recorder, fn, args, nprocs), []

    def pids(self):
        """Return no number: the ranks are threads."""
        return []

    def join(self, timeout=None, grace_period=None):
        """Run them and return True. Raises torch's errors for the rank that failed first."""
        ranks, self._start = self._start, lambda: None
        try:
            ranks()
        except RankError as error:
            if isinstance(error.__cause__, SystemExit):
                code = error.__cause__.code
                text = f"process {error.rank} terminated with exit code {code}"
                raise ProcessExitedException(text, error.rank, 0, code if isinstance(code, int) else 1) from None
            text = "".join(traceback.format_exception(error.__cause__))
            text = f"\n\n-- Process {error.rank} terminated with the following error:\n{text}"
            raise ProcessRaisedException(text, error.rank, 0) from None
        return True


def _start_ranks(recorder, fn, args, nprocs):
    def body(rank, *args):
        with of_rank(rank), recorder.rank(rank), exits(recorder):
            fn(rank, *args)

    start(body, args, nprocs, joined=False)


# -- Process ----------------------------------------------------------------------------------------------------------


def _is_rank(child):
    """Return whether a Process runs the program's own code, and is started on a rank."""
    target = getattr(child._target, "func", child._target) or type(child)
    name = getattr(target, "__module__", None)
    return here() is not None and name is not None and is_programs(name, sys.modules.get(name))


def _start(child):
    if not _is_rank(child):
        return _START(child)
    child._exit_code = None
    here().children.append(child)
    return None


def _run(recorder, child=None):
    """Run what has been started and not run yet; return whether `child` is a rank."""
    if here() is not None:
        _run_all(recorder, here())
    return hasattr(child, "_exit_code")


def _run_all(recorder, rank):
    waiting, rank.children = rank.children, []
    if not waiting:
        return

    def run(number):
        try:
            waiting[number].run()
        except (SystemExit, Stopped):
            raise
        except BaseException:
            traceback.print_exc()
            raise

    codes = [0] * len(waiting)
    try:
        _start_ranks(recorder, run, (), len(waiting))
    except RankError as error:
        codes = [-15] * len(waiting)  # of those that were ended by it
        code = getattr(error.__cause__, "code", 1)
        codes[error.rank] = code if isinstance(code, int) else 1
    except (DeadlockError, MismatchError) as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        codes = [1] * len(waiting)
    for child, code in zip(waiting, codes):
        child._exit_code = code


def _alive(run, child):
    return False if run(child) else _ALIVE(child)


def _code(run, child):
    return child._exit_code if run(child) else _CODE.fget(child)


def _turning(own, run):
    """Return a queue's ``get``, which on a rank lets others run while the program waits."""

    def get(queue, *args, **options):
        if here() is not None and is_programs(name := sys._getframe(1).f_globals["__name__"], sys.modules.get(name)):
            run()
            if not args and not options:
                while queue.empty():
                    nap()
        return own(queue, *args, **options)

    return get
