"""Simulated GPUs are switched on and off here, and their clock is asked: the functions of `simgpu` itself."""

import contextlib
import sys

import torch

from simgpu.accounting.clock import Clock, ClusterClock
from simgpu.device import signals
from simgpu.device.state import real_cuda, state
from simgpu.hardware import machines

_MOST = 128  # torch keeps a device's index in one signed byte


def enable(
    gpus=None,
    gpu="GTX 1080",
    link=None,
    *,
    machine=None,
    memory=None,
    clock=True,
    counting=True,
    accelerator=None,
    shapes_only=False,
    mode="eager",
):
    """Make `gpus` simulated GPUs, by default 2, and start their counters and their clock from zero.

    gpu, link: names in `hardware.GPUS` and `hardware.LINKS`, a link by default the card's own; or machine: one in
    `machines.MACHINES`, or a Machine.
    memory: bytes of each GPU, if not what the hardware has. clock, counting: False leaves out the simulated clock, or
    the counting of memory and with it its limit. accelerator: whether ``torch.accelerator`` and ``nn.DataParallel``
    mean these GPUs; by default only when the machine has no real one. shapes_only: True makes tensors without
    numbers: nothing is computed, so that a step of any size takes no memory of this machine and little time, and the
    clock and the memory's count say what it would cost. mode: the execution mode, a name in `hardware.HOST_COSTS` or a
    HostCost; "compiled" ones do in one kernel what `accounting.fusion` says, though hooks still see each gradient as
    soon as it is there, and those of a real compiled graph come together at its end.

    Of a cluster of more than 128 GPUs only the first node's are there, and those of all nodes on simulated ranks.
    Calling it again is allowed and replaces what was set. Tensors on devices that stay keep their values. Raises
    RuntimeError when a tensor is on a device that would go, takes more than the new capacity, or would have to gain or
    lose its numbers, and then changes nothing; ValueError for an unknown name or a number of GPUs outside 1 to 128;
    RuntimeError when this torch lacks what is needed, or simulated ranks run.

    >>> simgpu.enable(2, gpu="A100-SXM4-80GB", memory=2**20)
    >>> torch.ones(2, 3, device="sim:1").sum()
    tensor(6., device='sim:1')
    >>> torch.ones(2**20, device="sim:0")
    Traceback (most recent call last):
    torch.OutOfMemoryError: sim out of memory. Tried to allocate 4.00 MiB. GPU 0 has a total capacity of 1024.00...
    """
    _check_no_ranks("enable")
    chosen = _machine(gpus, gpu, link, machine)
    capacity = chosen.gpu.memory_bytes if memory is None else memory
    if not isinstance(capacity, int) or capacity < 0:
        raise ValueError(f"expected the memory of a GPU as a number of bytes, got {memory!r}")
    _register()
    from simgpu.device import gpu_list as devices

    made = (ClusterClock if isinstance(chosen, machines.Cluster) else Clock)(chosen, mode) if clock else None
    count = chosen.node.count if chosen.count > _MOST else chosen.count
    devices.resize(count, capacity, counting, torch.device("meta" if shapes_only else "cpu"))
    state.machine = chosen
    state.leads = not real_cuda() if accelerator is None else accelerator
    state.clock = made


def disable():
    """Take all simulated GPUs away, so that torch.accelerator names the real one again, or none.

    The device type stays known to torch. Raises RuntimeError when a tensor is left on one of them, or ranks run.
    """
    _check_no_ranks("disable")
    if state.gpus:
        from simgpu.device import gpu_list

        gpu_list.resize(0, 0, state.counting, state.home)
    state.clock, state.leads = None, False
    if not state.as_cuda and "simgpu.torch_glue.install" in sys.modules:
        sys.modules["simgpu.torch_glue.install"].disable()
        signals.restore(None)


def as_cuda():
    """Return a context manager inside which programs written for CUDA run unmodified on the simulated GPUs.

    There ``.cuda()``, ``"cuda:1"`` and ``torch.cuda`` mean simulated GPUs, and their tensors say that they are on cuda;
    so libraries that ask ``torch.cuda.is_available()`` choose them. Afterwards all is as before, and what lies on
    ``cuda:1`` is on ``sim:1`` again. For a whole program: ``simgpu.as_cuda().__enter__()`` in its first lines, before
    the libraries look for GPUs, since some ask only once. Of simulated ranks all are inside until the last one leaves.
    Raises RuntimeError where no simulated GPUs are enabled.

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


def is_enabled():
    """Return whether there are simulated GPUs."""
    return bool(state.gpus)


def has_clock():
    """Return whether simulated GPUs with a simulated clock are enabled."""
    return state.clock is not None


def has_numbers():
    """Return whether simulated GPUs are enabled whose tensors hold numbers, not shapes only."""
    return bool(state.gpus) and state.home.type != "meta"


def clock():
    """Return the `Clock` that runs; raises RuntimeError with none."""
    if state.clock is None:
        raise RuntimeError("expected simulated GPUs with a clock: call simgpu.enable(...) first, without clock=False")
    return state.clock


@contextlib.contextmanager
def use_clock(clock):
    """Let the simulated GPUs have another `Clock` inside a ``with``, of as many GPUs; afterwards their own goes on."""
    before, state.clock = state.clock, clock
    try:
        yield clock
    finally:
        state.clock = before


def trace():
    """Return a context manager that records what the devices do while it is open; raises RuntimeError with no clock.

    >>> simgpu.enable(2, gpu="V100-SXM2-16GB")
    >>> with simgpu.trace() as trace:
    ...     x = torch.ones(1000, device="sim:0").to("sim:1")
    >>> trace.link_bytes()
    {'NVLink gpu0 out': 4000, 'NVLink gpu1 in': 4000}
    """
    return clock().trace()


def one_launch():
    """Return a context manager: what is queued inside costs the host one launch in all, as a replayed CUDA graph.

    Raises RuntimeError with no clock.

    >>> simgpu.enable(1)
    >>> with simgpu.trace() as each:
    ...     x = (torch.ones(3, device="sim:0") + 1) * 2
    >>> with simgpu.trace() as once, simgpu.one_launch():
    ...     x = (torch.ones(3, device="sim:0") + 1) * 2
    >>> once.seconds < each.seconds
    True
    """
    return clock().one_launch()


def spawn(fn, args=(), nprocs=None, allreduce=None):
    """Call ``fn(rank, *args)`` on simulated ranks, one for each GPU or `nprocs`; see `ranks.spawn`.

    >>> simgpu.enable(4)
    >>> def total(rank):
    ...     x = torch.full((1,), float(rank), device="sim")
    ...     dist.all_reduce(x)
    ...     return x.item()
    >>> simgpu.spawn(total)
    [6.0, 6.0, 6.0, 6.0]
    """
    from simgpu.ranks.spawn import spawn as start

    return start(fn, args, nprocs, allreduce)


def now():
    """Return the calling thread's simulated time, in seconds since `enable`; raises RuntimeError with no clock.

    >>> simgpu.enable(1)
    >>> simgpu.clock().advance(0.25, "reading a batch")
    >>> simgpu.now()
    0.25
    """
    return clock().now()


def machine():
    """Return the `machines.Machine` that is simulated, None before `enable`.

    >>> simgpu.enable(machine="DGX-H100")
    >>> simgpu.machine().count
    8
    """
    return state.machine


def features():
    """Return the table of what torch does on simulated GPUs and ranks, and what of it this torch can; print it.

    Loads what of torch the features are about, which takes seconds.
    """
    from simgpu.torch_glue.install import Report

    return Report()


def _machine(gpus, gpu, link, machine):
    if isinstance(gpus, int) and gpus > _MOST:
        raise ValueError(f"expected at most {_MOST} GPUs, the most that torch can number, got {gpus}")
    if machine is None:
        return machines.build(2 if gpus is None else gpus, gpu, link)
    if not isinstance(machine, machines.Machine):
        machine = machines.find(machines.MACHINES, machine, "machine")
    if gpus not in (None, machine.count):
        raise ValueError(f"the machine {machine.name} has {machine.count} GPUs, got gpus={gpus}: leave gpus out")
    return machine


def _check_no_ranks(name):
    spawn = sys.modules.get("simgpu.ranks.spawn")
    if spawn is not None and spawn.running():
        raise RuntimeError(f"simgpu.{name} was called while simulated ranks run: call it before simgpu.spawn")


def _register():
    from simgpu.ranks import functional
    from simgpu.torch_glue import install

    install.enable()
    if torch.distributed.is_available():
        functional.register()
