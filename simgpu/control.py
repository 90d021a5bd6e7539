"""Simulated GPUs are switched on and off here, and their clock is asked: the functions of `simgpu` itself."""

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, TypeVar

import torch

from simgpu.accounting.clock import Clock, ClusterClock
from simgpu.accounting.trace import Trace
from simgpu.device import signals
from simgpu.device.state import real_cuda, state
from simgpu.hardware import machines
from simgpu.hardware.arguments import find, whole
from simgpu.hardware.op_costs import HostCost
from simgpu.hardware.topology import Cluster, Machine

if TYPE_CHECKING:
    from simgpu.torch_glue.support_table import Report

T = TypeVar("T")

_MOST = 128  # torch keeps a device's index in one signed byte


def enable(
    gpus: int | None = None,
    gpu: str = "GTX 1080",
    link: str | None = None,
    *,
    machine: str | Machine | None = None,
    memory: int | None = None,
    clock: bool = True,
    counting: bool = True,
    accelerator: bool | None = None,
    shapes_only: bool = False,
    mode: str | HostCost = "eager",
) -> None:
    """Make simulated GPUs, ``sim:0`` and on, and start their counters and their clock from zero.

    Calling it again replaces what was set; tensors on GPUs that stay keep their values. Of a cluster of more than 128
    GPUs only the first node's are there, and those of all nodes on simulated ranks.

    Args:
        gpus: The number of GPUs, 1 to 128; by default the machine's, or 2.
        gpu: What each of them is, a name in `hardware.GPUS`. Not looked at where `machine` is given.
        link: What joins them, a name in `hardware.LINKS`; by default the card's own. Not looked at with `machine`.
        machine: A name in `hardware.MACHINES`, or a `hardware.Machine`, in place of `gpu` and `link`.
        memory: Bytes of each GPU; by default what the hardware has.
        clock: False leaves the simulated clock out.
        counting: False leaves the counting of memory out, and with it its limit.
        accelerator: Whether ``torch.accelerator`` and ``nn.DataParallel`` mean these GPUs; by default only when the
            computer has no real one.
        shapes_only: True makes tensors that have shapes and no numbers. Nothing is computed, so that a step of any size
            takes little memory and time of this computer; the clock and the allocator say what it would cost.
        mode: The execution mode, a name in `hardware.HOST_COSTS` or a `HostCost`. "compiled" does in one kernel what
            `accounting.fusion` says; hooks still see each gradient as soon as it is there, while a real compiled graph
            gives all at its end.

    Raises:
        ValueError: A name is unknown, or a number is outside what is allowed.
        RuntimeError: A tensor is on a GPU that would go, takes more than the new memory, or would have to gain or lose
            its numbers (nothing is changed then); this torch lacks what is needed; or simulated ranks run.

    >>> simgpu.enable(2, gpu="A100-SXM4-80GB", memory=2**20)
    >>> torch.ones(2, 3, device="sim:1").sum()
    tensor(6., device='sim:1')
    >>> torch.ones(2**20, device="sim:0")
    Traceback (most recent call last):
    torch.OutOfMemoryError: sim out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 1024.00...
    """
    _check_no_ranks("enable")
    chosen = _machine(gpus, gpu, link, machine)
    capacity = chosen.gpu.memory_bytes if memory is None else whole("the memory of a GPU in bytes", memory, 0)
    _register()
    from simgpu.device import gpu_list as devices

    made = (ClusterClock if isinstance(chosen, Cluster) else Clock)(chosen, mode) if clock else None
    count = chosen.node.count if isinstance(chosen, Cluster) and chosen.count > _MOST else chosen.count
    devices.resize(count, capacity, counting, torch.device("meta" if shapes_only else "cpu"))
    state.machine = chosen
    state.is_accelerator = not real_cuda() if accelerator is None else accelerator
    state.clock = made


def disable() -> None:
    """Take all simulated GPUs away, so that ``torch.accelerator`` names the real one again, or none.

    The device type stays known to torch.

    Raises:
        RuntimeError: A tensor is left on one of them, or simulated ranks run.
    """
    _check_no_ranks("disable")
    if state.gpus:
        from simgpu.device import gpu_list

        gpu_list.resize(0, 0, state.counting, state.real_device)
    state.clock, state.is_accelerator = None, False
    if not state.as_cuda and "simgpu.torch_glue.install" in sys.modules:
        sys.modules["simgpu.torch_glue.install"].disable()
        signals.restore(None)


def as_cuda() -> AbstractContextManager[None]:
    """Return a context manager inside which programs written for CUDA run unmodified on the simulated GPUs.

    There ``.cuda()``, ``"cuda:1"`` and ``torch.cuda`` mean simulated GPUs, and their tensors say that they are on cuda;
    so libraries that ask ``torch.cuda.is_available()`` choose them. Afterwards all is as before, and what lies on
    ``cuda:1`` is on ``sim:1`` again. For a whole program: ``simgpu.as_cuda().__enter__()`` in its first lines, before
    the libraries look for GPUs, since some ask only once. Of simulated ranks all are inside until the last one leaves.

    Raises:
        RuntimeError: No simulated GPUs are enabled.

    >>> simgpu.enable(2)
    >>> with simgpu.as_cuda():
    ...     print(torch.cuda.device_count(), torch.ones(2).cuda().device)
    2 cuda:0
    """
    if not state.gpus:
        raise RuntimeError("expected simulated GPUs to stand for CUDA's: call simgpu.enable(...) first")
    from simgpu.torch_glue import as_cuda, install

    install.require("simgpu.as_cuda")
    return as_cuda.AsCuda()


def is_enabled() -> bool:
    """Return whether there are simulated GPUs."""
    return bool(state.gpus)


def has_clock() -> bool:
    """Return whether simulated GPUs with a simulated clock are enabled."""
    return state.clock is not None


def has_numbers() -> bool:
    """Return whether simulated GPUs are enabled whose tensors hold numbers, and not only shapes."""
    return bool(state.gpus) and state.real_device.type != "meta"


def clock() -> Clock:
    """Return the clock of the simulated GPUs.

    Raises:
        RuntimeError: No simulated GPUs are enabled, or they have no clock.
    """
    if state.clock is None:
        raise RuntimeError("expected simulated GPUs with a clock: call simgpu.enable(...) first, without clock=False")
    return state.clock


@contextlib.contextmanager
def use_clock(clock: Clock) -> Iterator[Clock]:
    """Let the simulated GPUs have another clock inside a ``with``; afterwards their own goes on.

    Args:
        clock: The clock of a machine with at least as many GPUs, as ``simgpu.Clock(machine, mode="compiled")``.

    Raises:
        ValueError: That machine has fewer GPUs.
    """
    if clock.machine.count < len(state.gpus):
        raise ValueError(f"expected the clock of {len(state.gpus)} GPUs or more, got one of {clock.machine.count}")
    before, state.clock = state.clock, clock
    try:
        yield clock
    finally:
        state.clock = before


def trace() -> Trace:
    """Return a context manager that records what GPUs, links and host do while it is open, and can be read afterwards.

    Raises:
        RuntimeError: There is no clock.

    >>> simgpu.enable(2, gpu="V100-SXM2-16GB")
    >>> with simgpu.trace() as trace:
    ...     x = torch.ones(1000, device="sim:0").to("sim:1")
    >>> trace.link_bytes()
    {'NVLink gpu0 out': 4000, 'NVLink gpu1 in': 4000}
    """
    return clock().trace()


def one_launch() -> AbstractContextManager[None]:
    """Return a context manager: what is queued inside costs the host one launch in all, as a replayed CUDA graph.

    Raises:
        RuntimeError: There is no clock.

    >>> simgpu.enable(1)
    >>> with simgpu.trace() as each:
    ...     x = (torch.ones(3, device="sim:0") + 1) * 2
    >>> with simgpu.trace() as once, simgpu.one_launch():
    ...     x = (torch.ones(3, device="sim:0") + 1) * 2
    >>> once.seconds < each.seconds
    True
    """
    return clock().one_launch()


def spawn(
    fn: Callable[..., T],
    args: Sequence[Any] = (),
    nprocs: int | None = None,
    allreduce: str | Callable[[int], Any] | None = None,
) -> list[T]:
    """Call ``fn(rank, *args)`` on simulated ranks and return what the calls returned, in the order of ranks.

    Each rank is a thread with a GPU, a default process group, torchrun's environment variables and random numbers of
    its own. They take turns in a fixed order, so that results, bytes and simulated times are the same in every run.

    Args:
        fn: What each rank runs; it need not be importable, as ``torch.multiprocessing.spawn`` demands.
        args: Further arguments of `fn`, the same for all ranks.
        nprocs: The number of ranks; by default one for each GPU.
        allreduce: What carries every all-reduce: the name of an algorithm, "ring", "tree" or "sharp", or a function of
            the number of ranks that returns a schedule; by default what NCCL would choose.

    Raises:
        RankError: `fn` raised; the first such error is the cause.
        MismatchError: Ranks of a group call what does not fit together.
        DeadlockError: Ranks wait for calls that no rank will make.
        ValueError: There are not as many GPUs as ranks.
        RuntimeError: No simulated GPUs are enabled, or it was called by a rank, or beside another call.

    >>> simgpu.enable(4)
    >>> def total(rank):
    ...     x = torch.full((1,), float(rank), device="sim")
    ...     dist.all_reduce(x)
    ...     return x.item()
    >>> simgpu.spawn(total)
    [6.0, 6.0, 6.0, 6.0]
    """
    from simgpu.ranks.spawn import spawn as start

    return start(fn, args, None if nprocs is None else whole("the number of ranks", nprocs, 1), allreduce)


def now() -> float:
    """Return the calling thread's simulated time, in seconds since `enable`.

    Raises:
        RuntimeError: There is no clock.

    >>> simgpu.enable(1)
    >>> simgpu.clock().advance(0.25, "reading a batch")
    >>> simgpu.now()
    0.25
    """
    return clock().now()


def machine() -> Machine | None:
    """Return the machine that is simulated; None before `enable`.

    >>> simgpu.enable(machine="DGX-H100")
    >>> simgpu.machine().count
    8
    """
    return state.machine


def features() -> "Report":
    """Return the table of what torch does on simulated GPUs and ranks, and what of it this torch can; print it.

    Loads what of torch the features are about, which takes seconds.
    """
    from simgpu.torch_glue.support_table import Report

    return Report()


def _machine(gpus: int | None, gpu: str, link: str | None, machine: str | Machine | None) -> Machine:
    gpus = None if gpus is None else whole("the number of GPUs", gpus, 1, _MOST)
    if machine is None:
        return machines.build(gpus or 2, gpu, link)
    if not isinstance(machine, Machine):
        machine = find(machines.MACHINES, machine, "machine")
    if gpus not in (None, machine.count):
        raise ValueError(f"the machine {machine.name} has {machine.count} GPUs, got gpus={gpus}: leave gpus out")
    if machine.count > _MOST and not isinstance(machine, Cluster):
        raise ValueError(f"expected a machine of at most {_MOST} GPUs, or a cluster, got {machine.count} in one node")
    return machine


def _register() -> None:
    from simgpu.ranks import functional
    from simgpu.torch_glue import install

    install.enable()
    if torch.distributed.is_available():
        functional.register()


def _check_no_ranks(name: str) -> None:
    spawn = sys.modules.get("simgpu.ranks.spawn")
    if spawn is not None and spawn.running():
        raise RuntimeError(f"simgpu.{name} was called while simulated ranks run: call it before simgpu.spawn")
