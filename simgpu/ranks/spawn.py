"""Start ranks: a thread for each, its own process group, and everything as it was when they have ended."""

import contextlib
import sys
import threading
import time
from functools import cache
from multiprocessing import active_children
from weakref import WeakSet

import torch.distributed as dist

from simgpu.accounting.allocator import Running
from simgpu.device import signals
from simgpu.device.gpu_list import new
from simgpu.device.state import state
from simgpu.hardware.topology import Cluster
from simgpu.ranks import blocking_calls, diagnosis, interrupt, logs, seeds, warned
from simgpu.ranks.communication_costs import CommunicationCosts
from simgpu.ranks.errors import DeadlockError, MismatchError, RankError, Stopped
from simgpu.ranks.modules import Modules
from simgpu.ranks.process import Process
from simgpu.ranks.process_group import NAME, SimGroup
from simgpu.ranks.rank import Rank
from simgpu.ranks.rendezvous import NewGroups, Rendezvous
from simgpu.ranks.scheduler import RankLock, Scheduler
from simgpu.ranks.sleeping import sleep
from simgpu.ranks.store import Store
from simgpu.torch_glue.here import here
from simgpu.torch_glue.install import in_spawn, replaced

_LOOK_S = 0.1
_join = threading.Thread.join  # of a rank that has started others too
_one_call = threading.Lock()  # held by the call that is under way: what it replaces in torch is the whole process's


def spawn(fn, args=(), nprocs=None, allreduce=None):
    """Call ``fn(rank, *args)`` on `nprocs` simulated ranks and return their results, in the order of ranks.

    nprocs: by default one rank for each simulated GPU. Rank r's current device is ``sim:r``; on a cluster of nodes of 8
    it is GPU r % 8 of node r // 8, and ``sim:k`` means its own node's. Its default process group, of the backend
    ``simccl``, is there already, and so are torchrun's environment variables; a program's own ``init_process_group``,
    with whatever backend, is content with it. Inside `simgpu.as_cuda` that call makes ``cuda:0`` the current device, as
    in any new process, unless the program has set one. The ranks are threads that take turns; each has for itself what
    a process would have: its process groups, its environment, the program's modules and their variables, sys.argv,
    sys.stdout, torch's default dtype, the filters of warnings, and random numbers: other ones on each rank unless the
    program seeds them there. ``sys.exit(0)`` ends a rank well; ``time.sleep`` takes simulated time. The results are the
    same in every run.

    allreduce: what carries every all-reduce, those of DDP's buckets too: the name of an algorithm, "ring", "tree" or
    "sharp", or a function ``allreduce(n)`` that returns the schedule for n ranks; see `schedules`. By default what a
    library would choose, as `hardware.collective_costs` says.

    Raises RankError when `fn` raises, with the first such error as its cause; MismatchError and DeadlockError when the
    ranks' calls do not fit together, or wait for one another; ValueError for a number of ranks without GPUs;
    RuntimeError before `simgpu.enable`, inside a rank and beside another call. Nothing is left behind then.
    """
    _check(nprocs)
    if here() is not None:
        raise RuntimeError(f"simgpu.spawn was called by rank {here().number}: ranks cannot start other ranks")
    return start(fn, args, nprocs, allreduce)


def start(fn, args=(), nprocs=None, allreduce=None, joined=True):
    """As `spawn`, and also on a rank, which waits meanwhile. joined: whether the ranks have a process group already."""
    _check(nprocs)
    size = state.machine.count if nprocs is None else nprocs
    if here() is not None:
        return _start_on_rank(fn, args, size)
    if not _one_call.acquire(blocking=False):
        raise RuntimeError("simgpu.spawn is still running in another thread: start these ranks when it has returned")
    try:
        with Modules.split():
            process, handler = Process(), signals.in_use(signals.SIGINT)
            signals.install()  # which the ranks' threads cannot, and would try before every operation
            try:
                with (
                    in_spawn(),
                    replaced([(time, "sleep", sleep), *logs.entries(), *warned.entries(), *blocking_calls.entries()]),
                ):
                    return World(size, allreduce, joined).run(fn, args)
            finally:
                process.enter()
                logs.forget()
                signals.restore(handler)
    finally:
        _one_call.release()


def running():
    """Return whether ranks run, in whichever thread."""
    return _one_call.locked()


def _start_on_rank(fn, args, size):
    """Start ranks as a rank's own processes: what ``torch.multiprocessing.spawn`` does there."""
    with Modules.split():
        world, parent = World(size, None, joined=False), here().process
        parent.leave()
        try:
            return world.run(fn, args)
        finally:
            parent.enter()
            if state.clock is not None:
                state.clock.wait_until(world.ended, "ranks that it started")


class World:
    """The ranks of one call to `spawn`.

    joined: whether they have a process group before the program asks for one.
    """

    def __init__(self, size, allreduce, joined=True):
        self.joined, self.is_first, self.seed = joined, here() is None, seeds.draw()
        self.parent = here() and here().world
        # Threads and processes from before, for which no rank waits.
        self.strangers = self.parent.strangers if self.parent else set(sys._current_frames())
        self.earlier_children = self.parent.earlier_children if self.parent else set(active_children())
        self.began = 0 if state.clock is None else state.clock.now_ps()  # past the ends of an earlier call's ranks
        self.ended = self.began  # the last moment of any rank that has ended
        self.schedule = cache(allreduce) if callable(allreduce) else lambda size: allreduce
        self.size, self.results, self._rendezvous, self._errors = size, [None] * size, {}, []
        self.scheduler = Scheduler(size, lambda works: diagnosis.deadlock(self, works))
        self._costs = CommunicationCosts(state.clock)
        self.ranks = [
            Rank(first + i, i, self, state.clock, gpus)
            for first, gpus in _nodes(size)
            for i in range(min(len(gpus), size - first))
        ]
        self.store, self.shardings, self.works = Store(), {}, WeakSet()
        self.new_groups, self.compiling = NewGroups(size), RankLock("torch.compile")
        self.compared, self.replicas = [0] * size, {}  # by `replicas.ReplicasEqual`
        self.profiling = None  # the profiler that one of the ranks has started

    def run(self, fn, args):
        """Run `fn` on all ranks and return its results; raises the error of the first that raised one."""
        threads = [
            threading.Thread(target=self._body, args=(rank, fn, args), name=f"rank {rank.number}", daemon=True)
            for rank in self.ranks
        ]
        for thread in threads:
            thread.start()
        self.scheduler.start()
        try:
            for thread in threads:
                while thread.is_alive():
                    _join(thread, _LOOK_S)  # an interrupt that Python passes on itself wakes nobody who waits for ever
        except BaseException:  # Ctrl-C
            interrupt.end(threads, self.scheduler, self._leave)
            raise
        return self._end()

    def group(self, options):
        """Return the calling rank's part of a new process group: what torch calls to make one."""
        owner = here()
        ranks = tuple(options.global_ranks_in_group)
        key = options.group_id, ranks
        owner.groups[key] += 1  # a name may come again once a group is destroyed
        where = f"group {list(ranks)}" if ranks else "the default group"
        made = f" made {diagnosis.place()[2:-1]}" if ranks else ""
        new = Rendezvous(ranks or range(self.size), where, self._costs, made)
        rendezvous = self._rendezvous.setdefault((key, owner.groups[key]), new)
        return SimGroup(options.group_rank, options.group_size, rendezvous, owner)

    def _body(self, rank, fn, args):
        try:
            self.scheduler.enter(rank.number)
            self._inside(rank, fn, args)
        except Stopped:
            pass
        except SystemExit as error:
            if error.code not in (0, None):
                self._fail(rank, error)
        except BaseException as error:
            self._fail(rank, error)
        finally:
            self._leave(rank.number)

    def _leave(self, number):
        rank = self.ranks[number]
        rank.ended = True
        self.scheduler.leave(number)
        rank.process = None  # torch may keep the rank, by a Work, and with it all of the program's variables

    def _fail(self, rank, error):
        self._errors.append((rank.number, error))
        self.scheduler.stop()

    def _inside(self, rank, fn, args):
        rank.begin()
        state.current = rank.device if self.joined or not state.as_cuda else 0
        try:
            if self.joined:
                dist.init_process_group(NAME, store=self.store, rank=rank.number, world_size=self.size)
            self.results[rank.number] = fn(rank.number, *args)
        finally:
            with contextlib.suppress(Exception):
                dist.destroy_process_group()
            state.current = 0
            for gpu in state.gpus:
                gpu.allocator.end(Running.process)
            if rank.clock is not None:
                self.ended = max(self.ended, rank.clock.now_ps())

    def _end(self):
        """Return the results or raise an error, and keep neither: torch keeps a Work that nobody waits for, and us."""
        works = [work for rendezvous in self._rendezvous.values() for work in rendezvous.open()]
        for work in self.works:
            work.forget()
        results, errors, self.results, self._errors, self._rendezvous = self.results, self._errors, None, [], {}
        if errors:
            number, error = errors[0]
            if isinstance(error, (DeadlockError, MismatchError)):
                raise error
            what = f"rank {number} of {self.size} raised {type(error).__name__}: {_said(error)}"
            if isinstance(error, SystemExit):
                what = f"rank {number} of {self.size} ended with exit code {error.code}"
            raise RankError(what, number) from error
        if works:
            raise DeadlockError(f"all ranks have returned, but {diagnosis.waits(self, works)}")
        if self.new_groups.lacking():
            raise MismatchError(diagnosis.left_out(self))
        return results


def _said(error):
    """Return an error's message; of one from a DataLoader's worker, which has a traceback in it, the worker's."""
    text = str(error)
    if "\nOriginal Traceback" not in text:
        return text
    return text.strip().splitlines()[-1].removeprefix(f"{type(error).__name__}: ")


def _nodes(size):
    """Yield, for each node that `size` ranks need, the number of its first GPU and the list of its GPUs."""
    each = state.machine.node.count if isinstance(state.machine, Cluster) else state.machine.count
    for first in range(0, size, each):
        yield first, new(range(each), state.gpus[0].allocator.capacity) if first else state.gpus[:each]


def _check(nprocs):
    if not state.gpus:
        raise RuntimeError("expected simulated GPUs for the ranks: call simgpu.enable(...) first")
    if isinstance(nprocs, (bool, str, float)):
        raise ValueError(f"expected the number of ranks as a whole number, got {nprocs!r}")
    if nprocs is not None and not 1 <= nprocs <= state.machine.count:
        raise ValueError(
            f"expected 1 to {state.machine.count} ranks, one for each simulated GPU, got {nprocs}: "
            f"call simgpu.enable({nprocs}) for more"
        )
